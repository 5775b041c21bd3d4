// A watched stream over time: the rate of each point above the last image it counts, the allowed band, alarms, resets.

const DATA = JSON.parse(document.getElementById("data").textContent);

function drawRates({ id, what, counts, allowed }) {
  const area = document.getElementById(id), ends = [];
  DATA.sizes.forEach((size) => ends.push(size + (ends.at(-1) ?? 0)));
  const rates = counts.map((count, i) => (100 * count) / Math.max(DATA.sizes[i], 1)), seen = ends.at(-1);
  const top = 1.15 * Math.max(...rates, 130 * allowed, 5), width = Math.min(960, Math.max(280, area.clientWidth));
  const { svg, X, Y, box } = axes({ width, height: 250, x: [0, seen], y: [0, top], xTicks: ticks(0, seen, width < 500 ? 3 : 6),
    yTicks: ticks(0, top, 5), xLabel: "images seen", yLabel: `${what}, %`,
    label: `${what}: rate over time; allowed up to ${(100 * allowed).toFixed(1)} %` });
  const upright = (image, name) => sketch("line", { class: name, x1: X(image), x2: X(image), y1: box.top, y2: box.bottom });
  svg.append(sketch("rect", { class: "band", x: box.left, width: box.right - box.left, y: Y(100 * allowed),
    height: box.bottom - Y(100 * allowed) }));
  svg.append(line(ends.map((end, i) => [X(end), Y(rates[i])]), { color: "var(--text)", dashes: "" }, 2));
  DATA.events.forEach(({ kind, image, began }, i) => {
    const isLate = X(image) > width / 2;
    if (began !== null) svg.append(upright(began, "hint"));
    svg.append(upright(image, kind), sketch("text", { class: "tick name", x: isLate ? X(Math.min(image, began ?? image)) - 6 : X(image) + 6,
      y: box.top + 11 + 13 * (i % 3), "text-anchor": isLate ? "end" : "start" }, `${kind} at image ${image.toLocaleString("en")}`));
  });
  area.replaceChildren(svg);
}

const draw = () => DATA.charts.forEach(drawRates);
buildTheme();
draw();
addEventListener("resize", draw);
