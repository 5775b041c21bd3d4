// The top of the page: four numbers and one chart, FPR95 on near and far OOD sets. They count all results, unfiltered.

const byId = (id) => DATA.methods.findIndex(({ name }) => name === id);
const titleOf = (index) => DATA.methods[index].title;

// The mean of a column for every method that has all of its results.
function meansOf(metric) {
  if (!METRICS.has(metric)) return new Map();
  const groups = grouped(DATA.rows.filter(inColumn(metric)), (row) => row[METHOD]);
  const full = Math.max(0, ...[...groups.values()].map((rows) => rows.length));
  return new Map([...groups].filter(([, rows]) => rows.length === full)
    .map(([method, rows]) => [method, nested(rows, place(metric), MODEL)]));
}

function drawTiles() {
  const lead = [byId("auto"), DATA.ours ?? -1].find((index) => index >= 0) ?? ranking[0], base = byId("msp");
  const unit = (metric) => ({ image_ms: " ms", fit_seconds: " s" }[metric] ?? " %");
  const said = (metric, index) => {
    const value = meansOf(metric).get(index);
    return value === undefined ? "–" : `${figure(value, metric)}${unit(metric)}`;
  };
  const baseline = (metric) => (base >= 0 && base !== lead ? `MSP ${said(metric, base)}` : "");
  const values = [...meansOf(DATA.main)], own = meansOf(DATA.main).get(lead);
  const rank = 1 + values.filter(([, value]) => better(DATA.main) * (value - own) > 1e-9).length;
  const name = titleOf(lead), tile = (what, value, note) =>
    make("div", {}, make("small", {}, what), make("b", {}, value), make("small", {}, note));
  document.getElementById("tiles").replaceChildren(
    ...DATA.shown.slice(0, 2).map((metric) => tile(`${name}, mean ${titled(metric)}`, said(metric, lead), baseline(metric))),
    tile(`rank of ${name} by ${titled(DATA.main)}`, `${rank} of ${values.length}`, `best in hindsight: ${titleOf(ranking[0])}`),
    ...(METRICS.has("image_ms") ? [tile(`cost of ${name}`, said("image_ms", lead), `per image; fit ${said("fit_seconds", lead)}`)] : []));
}

function drawNearFar() {
  const [near, far] = ["near_fpr95", "far_fpr95"].map(meansOf), area = document.getElementById("near-far");
  document.querySelectorAll(".needs-near").forEach((element) => { element.hidden = !near.size || !far.size; });
  if (!near.size || !far.size) return;
  const worst = (index) => (near.get(index) + far.get(index)) / 2;
  const all = [...near.keys()].filter((index) => far.has(index));
  const best = all.reduce((a, b) => (worst(b) < worst(a) ? b : a));
  const named = ["msp", "energy", "optfs-e", "optfs", "auto"].map(byId).filter((index) => all.includes(index));
  const lines = unique([...named, best]);
  const width = Math.min(720, Math.max(300, area.clientWidth)), left = width < 500 ? 110 : 190, step = 30;
  const most = 1.06 * Math.max(1, ...lines.flatMap((index) => [100 * near.get(index), 100 * far.get(index)]));
  const height = step * lines.length + 44, X = (value) => left + ((width - left - 16) * value) / most;
  const svg = sketch("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `FPR95 on near and far OOD sets: ${lines.map((index) =>
      `${titleOf(index)} ${figure(near.get(index), "near_fpr95")} and ${figure(far.get(index), "far_fpr95")}`).join("; ")}` });
  for (const value of ticks(0, most, 5)) {
    svg.append(sketch("line", { class: "grid", x1: X(value), x2: X(value), y1: 4, y2: height - 40 }),
      sketch("text", { class: "tick", x: X(value), y: height - 24, "text-anchor": "middle" }, String(value)));
  }
  svg.append(sketch("text", { class: "tick", x: (left + width) / 2, y: height - 6, "text-anchor": "middle" },
    "FPR95 in %, lower is better"));
  lines.forEach((index, i) => {
    const y = step * i + 18, color = DATA.methods[index].name === "auto" ? "var(--link)" : "var(--soft)";
    const [a, b] = [X(100 * near.get(index)), X(100 * far.get(index))];
    const words = index === best && !named.includes(index) ? `${titleOf(index)} (best${
      width < 500 ? "" : " in hindsight"})` : titleOf(index);
    svg.append(sketch("text", { class: "label", x: 0, y: y + 4 }, words),
      sketch("line", { x1: a, x2: b, y1: y, y2: y, stroke: color, "stroke-width": 2 }),
      sketch("circle", { cx: a, cy: y, r: 5.5, fill: color, stroke: color, "stroke-width": 2 }),
      sketch("circle", { cx: b, cy: y, r: 5.5, fill: "var(--ground)", stroke: color, "stroke-width": 2 }));
  });
  const sets = (group) => DATA.oods.filter((ood) => ood.group === group).map((ood) => ood.name).join(", ");
  area.replaceChildren(svg, make("p", { class: "soft" }, make("b", {}, "●"), ` near OOD (${sets("near")})   `,
    make("b", {}, "○"), ` far OOD (${sets("far")})`));
}
