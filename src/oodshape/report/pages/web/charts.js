// Figures as SVG elements: ROC curves, and the picture of architectures.

const SMALL = { width: 260, height: 150 };

// ROC curves of [method, curve] pairs, with a line at 95 % of ID accepted.
function roc(pairs, ood) {
  const label = `ROC curves on ${ood}: ${pairs.map(([method]) => method.title).join(", ")}`;
  const tens = [0, 25, 50, 75, 100];
  const { svg, X, Y, box } = axes({ ...SMALL, height: 190, x: [0, 100], y: [0, 100], label, xTicks: tens, yTicks: tens,
    xLabel: "% of OOD accepted", yLabel: "% of ID accepted" });
  svg.append(sketch("line", { class: "hint", x1: box.left, x2: box.right, y1: Y(95), y2: Y(95) }));
  pairs.forEach(([method, curve], i) => {
    svg.append(line(curve[0].map((fpr, j) => [X(fpr / 10), Y(curve[1][j] / 10)]), method, i ? 1.4 : 2.4));
  });
  return svg;
}

// Where labels go: near their points, never on a point or on another label; none where there is no room.
function placed(points, box) {
  const taken = points.map(({ x, y }) => [x - 5, y - 5, x + 5, y + 5]);
  const free = ([l, t, r, b]) => l > box.left && r < box.right && t > box.top && b < box.bottom &&
    taken.every(([l2, t2, r2, b2]) => r < l2 || l > r2 || b < t2 || t > b2);
  const found = new Map(), pen = document.createElement("canvas").getContext("2d");
  pen.font = "bold 11px system-ui, sans-serif";
  for (const point of points) {
    const width = pen.measureText(point.name).width + 3;
    search: for (const far of [8, 13, 19, 26, 36, 48].filter((far) => far < (box.right - box.left) / 14)) {
      for (let turn = 0; turn < 16; turn += 1) {
        const angle = (turn * Math.PI) / 8, [dx, dy] = [Math.cos(angle), Math.sin(angle)];
        const x = point.x + far * dx + (dx < -0.3 ? -width : dx > 0.3 ? 0 : -width / 2), y = point.y + far * dy;
        const room = [x, y - 7, x + width, y + 7];
        if (free(room)) {
          taken.push(room);
          found.set(point, { x, y: y + 4, far, end: [x + (dx < -0.3 ? width : dx > 0.3 ? 0 : width / 2), y] });
          break search;
        }
      }
    }
  }
  return found;
}

// A point per method: the main metric on ConvNets and on others. Both axes give each halving of the error the same room.
function scatter(points, width, yLabel, onclick) {
  const values = points.flatMap(([, x, y]) => [100 * x, 100 * y]);
  const rest = (value) => -Math.log(Math.max(100.02 - value, 0.02));
  const marks = [50, 90, 99, 95, 80, 98, 99.5, 70, 97, 99.8, 60, 85, 99.9, 20, 92, 40, 0, 100]; // rounder ones first
  const low = Math.max(0, ...marks.filter((mark) => mark <= Math.min(...values) - 0.01));
  const high = Math.min(100, ...marks.filter((mark) => mark > Math.max(...values)));
  const height = Math.min(width, 600);
  const room = 34 * ((rest(high) - rest(low)) / (height - 50));
  const fit = marks.filter((mark) => mark >= low && mark <= high).reduce((kept, mark) =>
    (kept.every((other) => Math.abs(rest(other) - rest(mark)) > room) ? [...kept, mark] : kept), []);
  const { svg, X, Y, box } = axes({ width, height, x: [low, high], y: [low, high], toX: rest, toY: rest,
    label: `Mean ${titled(DATA.main)} of each method on ConvNets and on other networks`, xTicks: fit, yTicks: fit,
    xLabel: `mean ${titled(DATA.main)} on ConvNets`, yLabel });
  svg.append(sketch("line", { class: "hint", x1: X(low), y1: Y(low), x2: X(high), y2: Y(high) }));
  const dots = points.map(([index, x, y]) =>
    ({ index, x: X(100 * x), y: Y(100 * y), name: DATA.methods[index].title, values: [x, y] }));
  const first = [DATA.ours, chosen.method]; // these are named whatever happens, then the best
  const labels = placed([...dots].sort((a, b) => first.indexOf(b.index) - first.indexOf(a.index)
    || b.values[0] + b.values[1] - a.values[0] - a.values[1]), box);
  for (const dot of dots) {
    const label = labels.get(dot);
    if (!label || label.far <= 8) continue; // near enough to need no line
    svg.append(sketch("line", { class: "leader", x1: dot.x, y1: dot.y, x2: label.end[0], y2: label.end[1] }));
  }
  for (const dot of dots) {
    const { color } = DATA.methods[dot.index], isChosen = dot.index === chosen.method, label = labels.get(dot);
    const said = `${dot.name}: ${percent(dot.values[0])} on ConvNets, ${percent(dot.values[1])} on others`;
    svg.append(sketch("circle", { class: "point", cx: dot.x, cy: dot.y, r: isChosen ? 6.5 : 4.5, fill: color,
      stroke: isChosen ? "currentColor" : "", "stroke-width": 2, onclick: () => onclick(dot.index) },
    sketch("title", {}, said)));
    const at = label && { class: "name", x: label.x, y: label.y, "font-weight": isChosen ? 700 : 400 };
    if (label) svg.append(sketch("text", at, dot.name));
  }
  return { svg, missing: dots.filter((dot) => !labels.has(dot)).map((dot) => dot.name) };
}
