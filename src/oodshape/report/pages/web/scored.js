// Scored images: a threshold that can be moved, the histograms on one axis, the images, and why each was accepted or rejected.

const DATA = JSON.parse(document.getElementById("data").textContent);
const own = DATA.ticks.indexOf(DATA.alpha); // the guard's alpha
const state = { tick: own, open: -1 };
const ASKED = [0.01, 0.05, 0.1, 0.2]; // alphas whose figures are shown without asking
const WORDS = {
  ood: ["OOD", "OOD images accepted", "OOD images rejected"],
  id: ["ID", "ID images accepted", "ID images rejected"],
  new: ["", "Accepted", "Rejected"],
};

// One decimal, a tie to the even digit, as in the sentences above: only odd quarters are exact ties.
const share = (part, whole) => {
  const value = 100 * (part / whole), up = value.toFixed(1), isTie = (4 * value) % 2 === 1;
  return `${isTie && Number(up.at(-1)) % 2 === 1 ? (Number(up) - 0.1).toFixed(1) : up} %`;
};
const percentOf = (value) => `${Number((100 * value).toPrecision(3))} %`;
const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
const lnOf = (p) => (p > 0 ? signed(Math.log(p)) : "under −700");
const short = (value) => String(Number(value.toPrecision(3)));
const passes = (item) => item.p > DATA.ticks[state.tick];
const roleOf = (item) => DATA.sets[item.set].role;
const isWrong = (item) => (roleOf(item) === "id" && !passes(item)) || (roleOf(item) === "ood" && passes(item));
const limit = () => DATA.thresholds?.[state.tick] ?? null;

// "letters (OOD) accepted: 5.0 % (3 of 60); MSP: 33.3 % (20 of 60)"
function sentence(set) {
  const at = state.tick, { name, role, images, rejected } = set;
  const said = (detector) => {
    const out = rejected[detector][at], n = role === "ood" ? images - out : out;
    return [make("b", {}, share(n, images)), ` (${n.toLocaleString("en")} of ${images.toLocaleString("en")})`];
  };
  const verb = { ood: `${name} (OOD) accepted: `, id: `${name} (ID) rejected: `, new: `${name} rejected: ` }[role];
  const baseline = rejected.softmax ? ["; MSP: ", ...said("softmax")] : [];
  return make("span", { class: `line role-${role}` }, verb, ...said("guard"), ...baseline, " ");
}

function tell() {
  const alpha = DATA.ticks[state.tick], score = limit();
  const words = ["alpha ", make("b", {}, percentOf(alpha)),
    DATA.thresholds === null ? ", a threshold for each class. " :
      score === null ? `, no threshold: ${DATA.calibration} calibration images are too few for this alpha. ` :
        `, threshold ${short(score)}. `];
  document.getElementById("said").replaceChildren(...words, ...DATA.sets.map(sentence));
  document.getElementById("alpha").setAttribute("aria-valuetext",
    `alpha ${percentOf(alpha)}; ${DATA.sets.map((set) => sentence(set).textContent).join(" ")}`);
  document.getElementById("back").hidden = state.tick === own;
  document.getElementById("command").textContent =
    `oodshape calibrate ${DATA.guard} --alpha ${alpha} --out alpha-${alpha}.safetensors`;
}

async function copyCommand(event) {
  const button = event.currentTarget, text = document.getElementById("command").textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch { // not allowed: the text is selected for the reader
    getSelection().selectAllChildren(document.getElementById("command"));
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// What other alphas would do, to be read at once and in print: a column each; a click moves the slider there.
function drawAsked() {
  const shown = DATA.ticks.flatMap((alpha, tick) => (tick === own || ASKED.includes(alpha) ? [tick] : []));
  const figure = ({ role, images, rejected }, detector, tick) =>
    share(role === "ood" ? images - rejected[detector][tick] : rejected[detector][tick], images);
  const current = (tick) => ({ "aria-current": tick === state.tick ? "true" : undefined });
  const go = (tick) => () => { moveTo(tick); document.querySelector(`[data-tick="${tick}"]`).focus(); };
  const head = (tick) => make("th", { scope: "col", ...current(tick) }, make("button", { type: "button", class: "chip",
    "data-tick": tick, onclick: go(tick) }, percentOf(DATA.ticks[tick])), tick === own ? " guard" : "");
  const row = (set) => make("tr", {}, make("th", { scope: "row" }, set.name, " ",
    make("small", {}, set.role === "ood" ? "accepted" : "rejected")),
  ...shown.map((tick) => make("td", current(tick), figure(set, "guard", tick),
    ...(set.rejected.softmax ? [make("small", {}, `MSP ${figure(set, "softmax", tick)}`)] : []))));
  document.getElementById("asked").replaceChildren(make("table", {}, make("thead", {}, make("tr", {},
    make("th", { scope: "col" }, "alpha"), ...shown.map(head))), make("tbody", {}, ...DATA.sets.map(row))));
}

// ID scores filled in blue (of the first ID set, else of the calibration set), another set in its own colour.
function panel(set, width, mark) {
  const [low, high] = DATA.axis, idSet = DATA.sets.find((each) => each.role === "id");
  const base = idSet ? idSet.counts : DATA.heldOut, n = base.length;
  const parts = [["id", base], ...(set && set !== idSet ? [[set.role, set.counts]] : [])].map(([role, counts]) => {
    const total = Math.max(1, counts.reduce((a, b) => a + b, 0));
    return [role, counts.map((each) => (100 * each) / total)];
  });
  const most = 1.08 * Math.max(...parts.flatMap(([, shares]) => shares));
  const what = set && set !== idSet ? ` and of ${set.name}` : "";
  const label = `Histogram of the scores of ID images${what}, with the threshold`;
  const { svg, X, Y, box } = axes({ width, height: 170, x: [low, high], y: [0, most], label, xTicks: ticks(low, high, 6),
    yTicks: ticks(0, most, 3), xLabel: "score (higher: more like the training images)", yLabel: "% of the set" });
  const edge = (i) => low + ((high - low) * i) / n;
  for (const [role, shares] of parts) {
    const stairs = shares.flatMap((each, i) => [[X(edge(i)), Y(each)], [X(edge(i + 1)), Y(each)]]);
    svg.append(sketch("path", { class: role, d: `${path([[X(low), Y(0)], ...stairs, [X(high), Y(0)]])}Z` }));
    svg.append(line(stairs, { color: `var(--${role === "new" ? "soft" : role})`, dashes: "" }, 1.4));
  }
  const at = limit();
  const vertical = (value, name) => svg.append(sketch("line", { class: name, y1: box.top, y2: box.bottom,
    x1: X(Math.min(high, Math.max(low, value))), x2: X(Math.min(high, Math.max(low, value))) }));
  if (at !== null) vertical(at, "limit");
  if (mark !== undefined) vertical(mark, "mark");
  return svg;
}

function drawPanels() {
  const area = document.getElementById("panels"), others = DATA.sets.filter((set) => set.role !== "id");
  const width = Math.min(620, Math.max(280, area.clientWidth / (area.clientWidth > 860 && others.length > 1 ? 2 : 1) - 20));
  const idSet = DATA.sets.find((set) => set.role === "id");
  const base = make("b", { class: "role-id" }, idSet ? `${idSet.name} (ID)` : "calibration set");
  const figures = others.map((set) => {
    const name = set.role === "ood" ? `${set.name} (OOD)` : set.name;
    return make("figure", {}, make("figcaption", {}, base.cloneNode(true), " and ",
      make("b", { class: `role-${set.role}` }, name), "; images left of the dashed line are rejected."),
    panel(set, width));
  });
  area.replaceChildren(...figures);
}

function pictured(item, alt) {
  if (!item.picture) return make("span", { class: "gone" }, "image not found");
  const image = make("img", { src: item.picture, alt });
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth <= 40));
  return image;
}

const verdictOf = (item) => (passes(item) ? "accepted" : "rejected");

function thumb(item) {
  const said = `${verdictOf(item)} as ${item.label}, p ${short(item.p)}`;
  return make("li", { class: isWrong(item) ? "is-wrong" : "" },
    make("button", { type: "button", class: "item", title: item.path, "data-item": item.number, onclick: () => open(item) },
      pictured(item, ""), make("small", {}, item.label),
      make("small", { class: "soft" }, `p = ${Number(item.p.toPrecision(2))}`), make("span", { class: "unseen" }, `; ${said}`)));
}

// Errors first, the most surprising at the top: OOD images with high p-values, others with low ones.
function groupsNow() {
  const groups = [];
  for (const role of ["ood", "id", "new"]) {
    for (const isPassing of role === "id" ? [false, true] : role === "ood" ? [true, false] : [false, true]) {
      const items = DATA.items.filter((item) => roleOf(item) === role && passes(item) === isPassing);
      items.sort((a, b) => (role === "ood" && isPassing ? b.p - a.p : a.p - b.p) || a.number - b.number);
      if (items.length) groups.push({ role, isPassing, items, title: WORDS[role][isPassing ? 1 : 2] });
    }
  }
  const wrong = ({ role, isPassing }) => (role === "ood") === isPassing && role !== "new";
  return [...groups.filter(wrong), ...groups.filter((group) => !wrong(group))];
}

const FIRST = 48; // images of a group that are shown before "all"
const whole = new Set();

function drawWalls() {
  const shown = groupsNow();
  state.order = shown.flatMap(({ items }) => items);
  document.getElementById("walls").replaceChildren(...shown.flatMap(({ title, role, isPassing, items }) => {
    const key = `${role}${isPassing}`, some = whole.has(key) ? items : items.slice(0, FIRST);
    const total = DATA.sets.filter((set) => set.role === role).reduce((sum, set) => {
      const out = set.rejected.guard[state.tick];
      return sum + (isPassing ? set.images - out : out);
    }, 0);
    const note = items.length < total ? `${items.length} of ${total.toLocaleString("en")}` : total.toLocaleString("en");
    const more = some.length < items.length ? [make("button", { type: "button", class: "chip",
      onclick: () => { whole.add(key); drawWalls(); } }, `show all ${items.length}`)] : [];
    return [make("h3", {}, title, " ", make("small", {}, note)),
      make("ul", { class: "wall" }, ...some.map(thumb)), ...more];
  }));
}

// A row with a bar: [words, share of the longest in 0..1, figure, class].
function barred(rows, heads) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...rows.map(([words, part, figure, kind]) => make("tr", {}, make("td", { class: "words" }, words),
      make("td", { style: "width: 40%" }, make("span", { class: `meter ${kind || ""}`, style: `width: ${100 * part}%` })),
      make("td", {}, figure)))));
}

function componentsOf(item) {
  const alpha = DATA.ticks[state.tick];
  const components = [...item.components].sort((a, b) => a[1] - b[1]), isOne = components.length === 1;
  const rows = components.map(([method, p]) => [method, Math.min(1, Math.max(0, -Math.log10(p) / 4)),
    isOne ? short(p) : `${short(p)}, ln ${lnOf(p)}`, p <= alpha ? "low" : ""]);
  return [make("h3", {}, isOne ? "p-value of the method" : "p-values of the component detectors"),
    make("p", { class: "soft" }, "p-value: the fraction of calibration images that score this low or lower; longer bars are lower ",
      "p-values (logarithmic, full at 0.0001), red at or below alpha."), barred(rows, ["method", "1 / p", "p"]),
    ...(isOne ? [] : [make("p", {}, make("b", {}, "Together: "), `the score ${signed(item.score)} is the smaller of two ln p: of the sum ${
      components.map(([, p]) => lnOf(p)).join(" ")} (Fisher's method), and of the smallest p, plus ln 5 (a veto: one `,
    "component detector whose p-value is less than a fifth of the fused one decides alone). ",
    `Compared with the calibration set, this score has p = ${short(item.p)}, which decides.`)])];
}

// Text first: the decision, its reason, and the predicted classes.
function why(item) {
  const at = limit(), set = DATA.sets[item.set];
  const rejecting = item.components.filter(([, p]) => p <= DATA.ticks[state.tick]);
  const place = item.p <= 1 / (DATA.calibration + 1) + 1e-12 ? "no calibration image scores as low"
    : `including itself, ${percentOf(item.p)} of the calibration images score this low or lower`;
  const side = at === null ? "" : ` Its score ${short(item.score)} is ${passes(item) ? "at or above" : "below"} the threshold ${short(at)};`;
  const sure = (p) => (p < 0.0005 ? "under 0.1 %" : `${(100 * p).toFixed(1)} %`);
  const guesses = item.guesses.map(([label, p]) => `${label} (${sure(p)})`);
  const components = item.components.length > 1 ? [make("p", {}, rejecting.length
    ? `${rejecting.length} of ${item.components.length} component detectors alone would reject it: ${rejecting.map(([name]) => name).join(", ")}.`
    : `None of the ${item.components.length} component detectors alone would reject it.`)] : [];
  return [make("p", {}, make("b", {}, passes(item) ? "Accepted." : "Rejected."), `${side} ${place} (p = ${short(item.p)}).`),
    make("p", {}, `Predicted: ${guesses[0]}${guesses.length > 1 ? `, then ${guesses.slice(1).join(", ")}` : ""}.`),
    ...components,
    make("p", { class: "soft" }, `${set.name}${WORDS[set.role][0] ? ` (${WORDS[set.role][0]})` : ""}: ${item.path}`)];
}

function fill(item) {
  const box = document.getElementById("why"), place = state.order.indexOf(item);
  const step = (by) => () => fill(state.order[(place + by + state.order.length) % state.order.length]);
  const button = (text, onclick, label) => make("button", { type: "button", class: "chip", onclick, "aria-label": label }, text);
  state.open = item.number;
  const bar = make("div", { class: "bar" }, make("span", { class: "soft" }, "← and → go on, Esc closes"),
    button("←", step(-1), "previous image"), button("→", step(1), "next image"), button("Close", () => box.close(), "close"));
  box.replaceChildren(bar, make("div", { class: "inside" },
    make("h2", { id: "why-title" }, `#${item.number}: ${verdictOf(item)} as ${item.label}`),
    make("div", { class: "two" }, make("div", {}, pictured(item, `image ${item.number}, predicted ${item.label}`)),
      make("div", {}, ...why(item))),
    make("div", { class: "why" },
      make("div", {}, make("h3", {}, "Score compared with ID images"), panel(undefined, 330, item.score),
        make("p", { class: "soft" }, "Red: this image. Dashed: the threshold.")),
      make("div", {}, ...componentsOf(item)))));
}

function open(item) {
  fill(item);
  const box = document.getElementById("why");
  box.showModal();
  box.scrollTop = 0;
}

const LOOKS = { guard: { color: "var(--id)", dashes: "" }, softmax: { color: "var(--rest)", dashes: "5 3" } };

function legendOf(curves) {
  const key = (name) => make("span", {}, sketch("svg", { class: "key", viewBox: "0 0 22 10", "aria-hidden": "true" },
    sketch("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: LOOKS[name].color, "stroke-width": 4, "stroke-dasharray": LOOKS[name].dashes })),
  name === "guard" ? "guard" : "MSP");
  return make("div", { class: "legend" }, ...Object.keys(curves).map(key));
}

// The curves of one OOD set, or of all of them, and the points of the threshold that the slider shows.
function drawRoc() {
  const area = document.getElementById("roc");
  if (!area) return;
  const names = Object.keys(DATA.roc), name = state.roc ?? names[0], curves = DATA.roc[name];
  const sets = DATA.sets.filter((set) => set.role === "ood" && (set.name === name || !DATA.sets.some((each) => each.name === name)));
  const rate = (group, detector, isAccepted) => {
    const images = group.reduce((sum, set) => sum + set.images, 0);
    const out = group.reduce((sum, set) => sum + set.rejected[detector][state.tick], 0);
    return (100 * (isAccepted ? images - out : out)) / images;
  };
  const width = Math.min(460, Math.max(280, area.clientWidth));
  const { svg, X, Y } = axes({ width, height: 0.8 * width, x: [0, 100], y: [0, 100], label:
    `ROC curves of ${name}: ID images accepted by OOD images accepted`, xTicks: [0, 25, 50, 75, 100],
  yTicks: [0, 25, 50, 75, 100], xLabel: "% of OOD images accepted (FPR)", yLabel: "% of ID images accepted (TPR)" });
  for (const [detector, [fpr, tpr]] of Object.entries(curves)) {
    svg.append(line(fpr.map((x, i) => [X(100 * x), Y(100 * tpr[i])]), LOOKS[detector], 2));
    if (!sets[0].rejected[detector]) continue;
    const inside = DATA.sets.filter((set) => set.role === "id");
    svg.append(sketch("circle", { cx: X(rate(sets, detector, true)), cy: Y(100 - rate(inside, detector, false)), r: 4.5,
      fill: LOOKS[detector].color }));
  }
  const choice = make("select", { onchange: (event) => { state.roc = event.target.value; drawRoc(); document.querySelector("#roc select").focus(); } },
    ...names.map((each) => make("option", { value: each, selected: each === name }, each)));
  area.replaceChildren(...(names.length > 1 ? [make("label", {}, "ROC curves of ", choice)] : []), legendOf(curves), svg,
    make("p", { class: "soft" }, "Dots: the threshold at the chosen alpha."));
}

function refresh() {
  tell();
  drawAsked();
  drawPanels();
  drawRoc();
  drawWalls();
}

DATA.items.forEach((item, i) => { item.number = i; });
groupsNow().flatMap(({ items }) => items).forEach((item, i) => { item.number = i + 1; }); // as they stand on the page
const slider = document.getElementById("alpha");
slider.max = DATA.ticks.length - 1;
slider.value = own;
let isWaiting = false; // one drawing for all that the slider says between two frames
slider.addEventListener("input", () => {
  state.tick = Number(slider.value);
  tell();
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => { isWaiting = false; refresh(); });
});
function moveTo(tick) {
  state.tick = tick;
  slider.value = tick;
  refresh();
}
document.getElementById("copy").addEventListener("click", copyCommand);
document.getElementById("back").addEventListener("click", () => { moveTo(own); slider.focus(); });
const box = document.getElementById("why");
box.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const place = state.order.findIndex((item) => item.number === state.open);
  fill(state.order[(place + by + state.order.length) % state.order.length]);
  box.querySelector(".bar button:last-child").focus();
});
box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
box.addEventListener("close", () => document.querySelector(`[data-item="${state.open}"]`)?.focus());
buildTheme();
refresh();
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawPanels(); drawRoc(); } });
