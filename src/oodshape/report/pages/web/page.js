// The sections below the leaderboard, and what ties all of them together.

const overall = (rows) => better(DATA.main) * nested(rows, place(DATA.main), MODEL);
const ranking = [...grouped(DATA.rows, (row) => row[METHOD])]
  .sort(([, a], [, b]) => overall(b) - overall(a)).map(([method]) => method);
const chosen = { method: ranking[0], families: [], network: 0 };
chosen.other = DATA.ours !== null && DATA.ours !== chosen.method ? DATA.ours : ranking[1];

// The table first: what stands below it waits until the whole page is there.
function refresh() {
  drawBoard();
  if (document.readyState !== "loading") drawRest();
}

function drawRest() {
  drawScatter();
  drawDetail();
  cue();
  writeState();
}

function chooseMethod(method, jump = false) {
  if (chosen.other === method) chosen.other = chosen.method;
  chosen.method = method;
  buildChoice();
  refresh();
  if (jump) {
    document.getElementById("method").scrollIntoView();
    document.querySelector("#choice select").focus({ preventScroll: true });
  }
}

function selector(label, options, value, onchange) {
  return make("label", { class: "soft" }, `${label} `, make("select", {
    onchange: (event) => onchange(Number(event.target.value)),
  }, ...options.map(([key, text]) => make("option", { value: key, selected: key === value }, text))));
}

function buildChoice() {
  const names = DATA.methods.map((method, index) => [index, method.title]);
  const compare = (method) => { chosen.other = method; drawDetail(); writeState(); };
  document.getElementById("choice").replaceChildren(
    selector("Method", names, chosen.method, (method) => chooseMethod(method)),
    selector("compare with", [[-1, "none"], ...names], chosen.other ?? -1, compare));
}

function drawScatter() {
  const area = document.getElementById("scatter");
  const others = unique(DATA.models.map((model) => model.family)).filter((family) => family !== "ConvNet");
  if (area.parentElement.hidden) return;
  const families = chosen.families.length ? chosen.families : others;
  const rows = rowsShown(), points = architectures(rows, methodsShown(rows), families);
  const pick = (some) => () => { chosen.families = some; drawScatter(); };
  const same = (some) => String(some) === String(families);
  const sides = others.length > 1 ? [others, ...others.map((family) => [family])] : [];
  const chips = make("div", { class: "filter" }, ...sides.map((some) =>
    chip(some.map((family) => `${family}s`).join(" and "), same(some), pick(some))));
  if (!points.length) {
    area.replaceChildren(chips, make("p", { class: "soft" }, "Needs results on ConvNets and on other networks."));
    return;
  }
  const width = Math.min(900, Math.max(300, area.clientWidth));
  const label = `mean ${titled(DATA.main)} on ${families.map((family) => `${family}s`).join(" and ")}`;
  const { svg, missing } = scatter(points, width, label, (method) => chooseMethod(method));
  const note = `No room for the names of ${missing.join(", ")}: point at them, or see the table by family.`;
  area.replaceChildren(chips, svg, ...(missing.length ? [make("p", { class: "soft" }, note)] : []));
}

// The picked method and the one it is compared with as they are drawn here: never in one colour.
function compared() {
  const own = DATA.methods[chosen.method], other = DATA.methods[chosen.other];
  const color = own.color === "var(--text)" ? "var(--soft)" : "var(--text)";
  return new Map([[chosen.method, { ...own, dashes: "" }],
    ...(other && chosen.other !== chosen.method ? [[chosen.other, { ...other, color, dashes: "5 3" }]] : [])]);
}

const small = (kind, heads, rows) => make("table", { class: kind },
  make("thead", {}, make("tr", {}, ...heads.map((head) => (head ? make("th", { scope: "col" }, head) : make("td"))))),
  make("tbody", {}, ...rows.map(([name, ...cells]) => make("tr", {}, make("th", { scope: "row" }, name),
    ...cells.map((cell) => make("td", {}, ...[].concat(cell)))))));

// The figures of both methods on one OOD set, with their intervals.
function figuresBeside(rows, styles) {
  const cell = (row, metric) => {
    const [value, low, high] = row.slice(place(metric), place(metric) + 3);
    if (value === null) return "–";
    const limits = `${figure(low, metric)} – ${figure(high, metric)}`;
    return [figure(value, metric), hasInterval(metric) ? make("span", {}, limits) : ""];
  };
  return small("mini", ["", ...DATA.shown.map(titled)], [...styles.keys()].flatMap((method) =>
    rows.filter((row) => row[METHOD] === method).map((row) =>
      [DATA.methods[method].title, ...DATA.shown.map((metric) => cell(row, metric))])));
}

// A line per network: the means of both methods, and the first less the second.
function meansBeside(rows, styles) {
  const methods = [...styles.keys()];
  const heads = methods.flatMap((method) => DATA.shown.map((metric) => `${DATA.methods[method].title} ${titled(metric)}`));
  const line = (name, part) => {
    const texts = methods.map((method) => {
      const all = part.filter((row) => row[METHOD] === method);
      return DATA.shown.map((metric) => {
        const own = all.filter(inColumn(metric));
        return own.length ? figure(nested(own, place(metric), MODEL), metric) : "–";
      });
    });
    const gaps = methods.length < 2 ? [] : DATA.shown.map((_, i) => {
      const gap = Number(texts[0][i]) - Number(texts[1][i]);
      return Number.isNaN(gap) ? "–" : `${gap < 0 ? "−" : "+"}${Math.abs(gap).toFixed(2)}`;
    });
    return [name, ...texts.flat(), ...gaps];
  };
  const networks = [...grouped(rows, (row) => row[MODEL])];
  const lines = networks.map(([model, part]) => line(DATA.models[model].name, part));
  const ends = methods.length < 2 ? [] : DATA.shown.map((metric) => `difference, ${titled(metric)}`);
  return small("compared", ["network", ...heads, ...ends], networks.length > 1 ? [...lines, line("mean", rows)] : lines);
}

// What a method does, needs and where to read of it.
function factsOf(method) {
  const link = ([title, address]) => make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, title);
  const facts = [["does", method.sentence], ["needs", method.needs], ["fails", method.fails],
    ["paper", method.papers.length ? method.papers.flatMap((each, i) => (i ? [make("br"), link(each)] : [link(each)])) : method.paper],
    ["in code", method.recipe ? make("code", {}, method.recipe) : ""]];
  return make("table", { class: "facts" }, make("tbody", {}, ...facts.filter(([, said]) => said && said.length !== 0)
    .map(([name, said]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, ...[].concat(said))))));
}

function figuresOf(model, rows) {
  const styles = compared();
  const found = (drawn) => [...styles].map(([method, style]) => [style, drawn(method)]).filter(([, points]) => points);
  const figures = [], curves = curvesOf(model);
  for (const [ood, part] of grouped(rows, (row) => row[OOD])) {
    const { name, group } = DATA.oods[ood], pairs = found((method) => curves[`${method},${ood}`]);
    const parts = pairs.length ? [roc(pairs, name)] : [];
    const caption = make("figcaption", {}, make("b", {}, name), group ? ` (${group})` : "", figuresBeside(part, styles));
    figures.push(make("figure", {}, caption, ...parts));
  }
  return figures;
}

function drawDetail() {
  const method = DATA.methods[chosen.method], styles = compared();
  const rows = rowsShown().filter((row) => styles.has(row[METHOD]));
  const networks = [...grouped(rows, (row) => row[MODEL])].map(([model, part]) => {
    const { name, family, accuracy, train, id } = DATA.models[model];
    const figures = make("div", { class: "figures" });
    const draw = () => { if (!figures.children.length) figures.append(...figuresOf(model, part)); };
    const box = make("details", { class: "net", ontoggle: draw },
      make("summary", {}, make("b", {}, name), `${family === name ? "" : ` (${family})`}: ROC curves`),
      figures,
      make("p", { class: "soft", style: "padding: 0 .8rem" }, `Fitted on ${train} images; ${id} ID images` +
        (accuracy === null ? "." : `; accuracy of the network ${percent(accuracy)} %.`)));
    box.open = model === chosen.network;
    if (box.open) draw();
    box.addEventListener("toggle", () => { if (box.open) { chosen.network = model; writeState(); } });
    return box;
  });
  if (networks.length && !networks.some((box) => box.open)) networks[0].open = true;
  const legend = make("div", { class: "legend" }, ...[...styles].map(([index, style]) => keyed(index, style)),
    make("span", { class: "soft" },
      "ROC: the dotted line is at 95 % of ID accepted."));
  document.getElementById("detail").replaceChildren(make("h3", {}, method.title), factsOf(method),
    make("div", { class: "roll", tabindex: 0, role: "region", "aria-label": "Means of the method by network" },
      meansBeside(rows, styles)), legend, ...networks);
}

function hideWhatIsEmpty() {
  const families = unique(DATA.models.map((model) => model.family));
  const there = {
    families: families.includes("ConvNet") && families.length > 1,
  };
  for (const [name, isThere] of Object.entries(there)) {
    document.querySelectorAll(`.needs-${name}`).forEach((element) => { element.hidden = !isThere; });
  }
}

hideWhatIsEmpty();
buildTheme();
drawTiles();
drawNearFar();
usual = stateNow();
const section = followState();
document.addEventListener("DOMContentLoaded", () => { drawRest(); goTo(section); });
document.getElementById("reset").addEventListener("click", resetFilters);
document.querySelector("#leaderboard .scroll").addEventListener("scroll", cue);
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawNearFar(); drawScatter(); cue(); } });
