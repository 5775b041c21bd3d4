// Images at full size: a click enlarges, arrows go on, Escape closes.

const large = { at: -1, order: [] }; // what can be enlarged, in the order of the page: [image, caption, button]

function enlargeable(image, caption) {
  const at = large.order.length;
  const button = make("button", { type: "button", class: "zoom", "data-image": at, onclick: () => enlarge(at) }, image);
  large.order.push([image, caption, button]);
  return button;
}

function fillLarge(at) {
  const [image, caption] = large.order[at], box = document.getElementById("large"), n = large.order.length;
  const picture = make("img", { src: image.src, alt: image.alt, class: image.naturalWidth > 40 ? "smooth" : "" });
  const button = (text, label, onclick) => make("button", { type: "button", class: "chip", "aria-label": label, onclick }, text);
  large.at = at;
  box.replaceChildren(make("div", { class: "bar" }, make("span", { class: "soft" }, "← and → go on, Esc closes"),
    button("←", "previous image", () => fillLarge((at + n - 1) % n)), button("→", "next image", () => fillLarge((at + 1) % n)),
    button("Close", "close", () => box.close())), make("div", { class: "inside" }, picture, caption.cloneNode(true)));
}

function enlarge(at) {
  fillLarge(at);
  document.getElementById("large").showModal();
}

function buildLarge() {
  const box = document.getElementById("large");
  box.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], n = large.order.length;
    if (!by) return;
    event.preventDefault();
    fillLarge((large.at + by + n) % n);
    box.querySelector(".bar button:last-child").focus();
  });
  box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
  box.addEventListener("close", () => large.order[large.at]?.[2].focus());
}
