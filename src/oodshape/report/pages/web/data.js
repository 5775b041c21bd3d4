// The data of the page and what follows from it: filters, means, ranks. Nothing here draws.

const DATA = JSON.parse(document.getElementById("data").textContent);
const METRICS = new Map(DATA.metrics.map((metric) => [metric.name, metric])); // the columns that a reader may choose
const MODEL = 0, METHOD = 1, OOD = 2; // places in a row; the metrics follow, each with its limits

// What the reader has picked, by filter; nothing picked means all.
const picked = { model: new Set(), family: new Set(), ood: new Set(), group: new Set(), kind: new Set() };
const view = { columns: DATA.overview ? "average" : "model", metrics: DATA.overview ?? DATA.shown, intervals: false, search: "" };

// The curves of a network, "method,ood" -> [FPR, TPR]; read when they are drawn.
const curvesOf = (model) => (curvesOf.read[model] ??= JSON.parse(document.getElementById(`curves-${model}`)?.textContent ?? "{}"));
curvesOf.read = {};

const unique = (values) => [...new Set(values)];
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const better = (metric) => METRICS.get(metric).best;
const place = (metric) => METRICS.get(metric).at;
const titled = (metric) => METRICS.get(metric).title;
const hasInterval = (metric) => METRICS.get(metric).interval;
const inColumn = (metric) => { // whether a row counts in a column: all do, unless it is of near or far sets alone
  const { kind, at } = METRICS.get(metric);
  return (row) => row[at] !== null && (!kind || DATA.oods[row[OOD]].group === kind);
};
// Two decimals, a tie to the even digit as in every other table; only odd eighths are exact ties.
const percent = (value) => {
  const up = (100 * value).toFixed(2), isTie = Math.abs((800 * value) % 2) === 1;
  return isTie && Number(up.at(-1)) % 2 === 1 ? (Number(up) - 0.01).toFixed(2) : up;
};
const figure = (value, metric) => { // a value in the unit of its metric
  const { factor, decimals } = METRICS.get(metric);
  return factor === 100 ? percent(value) : (factor * value).toFixed(decimals);
};
const passes = (filter, value) => picked[filter].size === 0 || picked[filter].has(value);
const inSet = (ood) => passes("ood", DATA.oods[ood].name) && passes("group", DATA.oods[ood].group);
const inNetwork = (model) => passes("model", DATA.models[model].name) && passes("family", familyOf(model));
const familyOf = (model) => DATA.models[model].family;

function rowsShown() {
  return DATA.rows.filter((row) => inNetwork(row[MODEL]) && inSet(row[OOD]));
}

function methodsShown(rows) {
  const there = new Set(rows.map((row) => row[METHOD]));
  const words = view.search.toLowerCase().split(/[\s,]+/).filter(Boolean);
  return DATA.methods.map((_, index) => index).filter((index) => {
    const { name, title, kind } = DATA.methods[index];
    return there.has(index) && passes("kind", kind) &&
      (!words.length || words.some((word) => `${name} ${title.toLowerCase()}`.includes(word)));
  });
}

function grouped(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    const name = key(row), group = groups.get(name);
    if (group) group.push(row);
    else groups.set(name, [row]);
  }
  return groups;
}

// The mean of the means over the entries of `outer`, so that each network (or OOD set) counts the same.
function nested(rows, at, outer) {
  const sums = new Map();
  for (const row of rows) {
    const sum = sums.get(row[outer]);
    if (sum) [sum[0], sum[1]] = [sum[0] + row[at], sum[1] + 1];
    else sums.set(row[outer], [row[at], 1]);
  }
  return mean([...sums.values()].map(([sum, count]) => sum / count));
}

// The column groups of the board: the average, near and far sets, then a model, family or OOD set each.
function columnsOf(rows) {
  const key = {
    model: (row) => DATA.models[row[MODEL]].name,
    family: (row) => `${familyOf(row[MODEL])}s`,
    ood: (row) => DATA.oods[row[OOD]].name,
  }[view.columns];
  if (!key) return [{ name: "Average", rows }];
  const parts = [...grouped(rows, key)].map(([name, part]) => ({ name, rows: part }));
  const kinds = view.columns !== "ood" ? [] : [...grouped(rows, (row) => DATA.oods[row[OOD]].group)]
    .map(([name, part]) => ({ name, rows: part }))
    .filter((kind) => unique(kind.rows.map((row) => row[OOD])).length > 1 && kind.rows.length < rows.length);
  return parts.length === 1 ? parts : [{ name: "Average", rows }, ...kinds, ...parts];
}

// The cells of a column by method: value, limits where these are shown, and over how many of how many results.
function cellsOf(column, methods, metric) {
  const at = place(metric), outer = view.columns === "ood" ? OOD : MODEL;
  const byMethod = grouped(column.rows.filter(inColumn(metric)), (row) => row[METHOD]);
  const full = Math.max(0, ...[...byMethod.values()].map((rows) => rows.length));
  const cells = new Map();
  for (const method of methods) {
    const rows = byMethod.get(method) || [];
    const value = rows.length ? nested(rows, at, outer) : undefined;
    const [low, high] = !view.intervals || !rows.length || !hasInterval(metric) ? []
      : intervalOf(rows, method, metric) || [1, 2].map((step) => nested(rows, at + step, outer));
    cells.set(method, { value, low, high, rows, full, text: rows.length ? figure(value, metric) : "–", rank: 0 });
  }
  const compared = [...cells.values()].filter((cell) => cell.rows.length === full && full > 0);
  const goods = compared.map((cell) => better(metric) * Number(cell.text)); // equal as printed, equal in rank
  compared.forEach((cell, i) => { cell.rank = 1 + goods.filter((good) => good > goods[i]).length; });
  return cells;
}

// The place of what rows are of among `all`: its own, -1 where they are of everything, undefined between.
function wholeOrOne(rows, at, all) {
  const found = unique(rows.map((row) => row[at]));
  return found.length === 1 && all > 1 ? found[0] : found.length === all ? -1 : undefined;
}

// Whether a method cannot be told from the best on the images behind these rows.
function isTied(rows, method) {
  const lone = DATA.models.length === 1; // its mean over networks is its own
  const model = lone ? 0 : wholeOrOne(rows, MODEL, DATA.models.length);
  return (DATA.ties[`${model},${wholeOrOne(rows, OOD, DATA.oods.length)}`] || []).includes(method);
}

// The interval of a network's mean over all OOD sets, whose ID images are the same; undefined where none was kept.
function intervalOf(rows, method, metric) {
  const models = unique(rows.map((row) => row[MODEL]));
  if (models.length !== 1 || rows.length !== DATA.oods.length) return undefined;
  return DATA.averages[`${models[0]},${method}`]?.[metric];
}

// [method, x, y]: the main metric's mean on ConvNets and on the other families named; only methods that have every result.
function architectures(rows, methods, families) {
  const at = place(DATA.main);
  const sides = [(family) => family === "ConvNet", (family) => families.includes(family)].map((isHere) =>
    grouped(rows.filter((row) => isHere(familyOf(row[MODEL]))), (row) => row[METHOD]));
  const full = sides.map((side) => Math.max(0, ...[...side.values()].map((part) => part.length)));
  return methods
    .filter((method) => sides.every((side, i) => full[i] && side.get(method)?.length === full[i]))
    .map((method) => [method, ...sides.map((side) => nested(side.get(method), at, MODEL))]);
}
