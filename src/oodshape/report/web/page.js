// The sections below the leaderboard, and what ties all of them together.

const overall = (rows) => nested(rows, place("auroc"), MODEL);
const ranking = [...grouped(DATA.rows, (row) => row[METHOD])]
  .sort(([, a], [, b]) => overall(b) - overall(a)).map(([method]) => method);
const chosen = { method: ranking[0], families: [], network: 0 };
chosen.beside = DATA.ours !== null && DATA.ours !== chosen.method ? DATA.ours : ranking[1];

function refresh() {
  drawBoard();
  drawScatter();
  drawDetail();
}

function chooseMethod(method, jump = false) {
  if (chosen.beside === method) chosen.beside = chosen.method;
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
  const names = DATA.methods.map((method, index) => [index, method.name]);
  const compare = (method) => { chosen.beside = method; drawDetail(); };
  document.getElementById("choice").replaceChildren(
    selector("Method", names, chosen.method, (method) => chooseMethod(method)),
    selector("beside", [[-1, "none"], ...names], chosen.beside ?? -1, compare));
}

function drawScatter() {
  const area = document.getElementById("scatter");
  const others = unique(DATA.models.map((model) => model.family)).filter((family) => family !== "ConvNet");
  if (area.parentElement.hidden) return;
  const families = chosen.families.length ? chosen.families : others;
  const points = architectures(rowsShown(), methodsShown(), families);
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
  const label = `mean AUROC on ${families.map((family) => `${family}s`).join(" and ")}`;
  const { svg, missing } = scatter(points, width, label, (method) => chooseMethod(method));
  const note = `No room for the names of ${missing.join(", ")}: point at them, or see the table by family.`;
  area.replaceChildren(chips, svg, ...(missing.length ? [make("p", { class: "soft" }, note)] : []));
}

function figuresOf(model, rows) {
  const methods = [chosen.method, chosen.beside].filter((method) => method !== undefined && method >= 0);
  const found = (part, end) => methods.filter((method) => DATA[part][`${model},${method}${end}`])
    .map((method) => [DATA.methods[method], DATA[part][`${model},${method}${end}`]]);
  const figures = [], shapes = found("shapes", "");
  if (shapes.length) {
    const whose = shapes.map(([method]) => method.name).join(" and ");
    figures.push(make("figure", {}, make("figcaption", {}, make("b", {}, `Shaping by ${whose}`),
      ": what a feature of value z is multiplied by. Dotted: no shaping."), theta(shapes, DATA.models[model].name)));
  }
  for (const row of rows) {
    const { name, group } = DATA.oods[row[OOD]], pairs = found("curves", `,${row[OOD]}`);
    const own = DATA.curves[`${model},${chosen.method},${row[OOD]}`];
    const said = ["auroc", "fpr95"].map((metric) => {
      const at = place(metric);
      return `${NAMES[metric]} ${percent(row[at])} (${percent(row[at + 1])} to ${percent(row[at + 2])})`;
    });
    const parts = own ? [histogram(own, DATA.methods[chosen.method], name), roc(pairs, name)] : [];
    const caption = make("figcaption", {}, make("b", {}, name), ` (${group}): ${said.join("; ")}`);
    figures.push(make("figure", {}, caption, ...parts));
  }
  return figures;
}

function drawDetail() {
  const method = DATA.methods[chosen.method], other = DATA.methods[chosen.beside];
  const rows = rowsShown().filter((row) => row[METHOD] === chosen.method);
  const networks = [...grouped(rows, (row) => row[MODEL])].map(([model, part]) => {
    const { name, family, accuracy, train, id } = DATA.models[model];
    const figures = make("div", { class: "figures" });
    const draw = () => { if (!figures.children.length) figures.append(...figuresOf(model, part)); };
    const means = ["auroc", "fpr95"].map((metric) => `${NAMES[metric]} ${percent(nested(part, place(metric), MODEL))}`);
    const box = make("details", { class: "net", ontoggle: draw },
      make("summary", {}, make("b", {}, name), ` (${family}): ${means.join(", ")}`), figures,
      make("p", { class: "soft", style: "padding: 0 .8rem" }, `Fitted on ${train} images; ${id} ID images` +
        (accuracy === null ? "." : `; accuracy of the network ${percent(accuracy)} %.`)));
    box.open = model === chosen.network;
    if (box.open) draw();
    box.addEventListener("toggle", () => { if (box.open) chosen.network = model; });
    return box;
  });
  if (networks.length && !networks.some((box) => box.open)) networks[0].open = true;
  const legend = make("div", { class: "legend" }, keyed(chosen.method), other ? keyed(chosen.beside) : undefined,
    make("span", { class: "soft" },
      "Histograms: gray is ID, the line OOD; what lies left of the dotted line is rejected when 95 % of ID pass."));
  document.getElementById("detail").replaceChildren(
    make("p", {}, make("b", {}, method.name), method.sentence ? `: ${method.sentence}.` : "",
      make("br"), make("code", { class: "soft" }, method.recipe)), legend, ...networks);
}

function thumbnail(pick, i) {
  const source = DATA.samples.images[pick.images[i]], isId = pick.ood < 0;
  const share = `${(100 * pick.shares[i]).toFixed(1)} %`;
  const [label, predicted] = [pick.labels[i], pick.predicted[i]];
  const own = isId && label >= 0 ? [`class ${label}`] : [];
  const taken = [...own, ...(own.length && label === predicted ? [] : [`taken for ${predicted}`])].join(", ");
  const isWrong = isId ? "rejected" : pick.shares[i] >= 0.05 ? "passes" : "rejected";
  const more = isId ? `${share} of OOD images score higher` : `scores higher than ${share} of ID images`;
  const what = isId ? "ID image" : DATA.oods[pick.ood].name;
  const image = make("img", { src: source, alt: `${what}, ${taken}; score ${pick.scores[i]}; ${more}` });
  image.addEventListener("load", () => image.classList.toggle("smooth", image.naturalWidth > 40));
  return make("figure", { title: `score ${pick.scores[i]}; ${more}` }, image,
    make("figcaption", {}, make("b", {}, share),
      ...[isWrong, `score ${Number(pick.scores[i].toPrecision(3))}`, taken].flatMap((words) => [make("br"), words])));
}

function drawGallery(model, method) {
  const { picks } = DATA.samples;
  const models = unique(picks.map((pick) => pick.model));
  const methods = unique(picks.filter((pick) => pick.model === model).map((pick) => pick.method));
  const here = methods.includes(method) ? method : ranking.find((index) => methods.includes(index));
  const shown = picks.filter((pick) => pick.model === model && pick.method === here);
  const order = [...shown].sort((a, b) => (a.ood < 0) - (b.ood < 0) || b.shares[0] - a.shares[0]);
  const title = (pick) => pick.ood < 0
    ? make("h3", {}, "ID ", make("small", {}, "share of OOD images that score higher"))
    : make("h3", {}, DATA.oods[pick.ood].name, " ",
      make("small", {}, `${DATA.oods[pick.ood].group} OOD; share of ID images that score lower`));
  const named = (list, indices) => indices.map((index) => [index, list[index].name]);
  document.getElementById("gallery").replaceChildren(
    make("div", { class: "filter" },
      selector("Network", named(DATA.models, models), model, (index) => drawGallery(index, here)),
      selector("Method", named(DATA.methods, methods), here, (index) => drawGallery(model, index))),
    make("div", { class: "walls" }, ...order.map((pick) => make("div", {}, title(pick),
      make("div", { class: "thumbs" }, ...pick.images.map((_, i) => thumbnail(pick, i)))))));
}

function buildTheme() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const usual = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const isDark = () => (root.dataset.theme ?? usual()) === "dark";
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  label();
}

function hideWhatIsEmpty() {
  const families = unique(DATA.models.map((model) => model.family));
  const there = {
    families: families.includes("ConvNet") && families.length > 1,
    samples: DATA.samples.picks.length > 0,
    paper: Boolean(DATA.paper),
  };
  for (const [name, isThere] of Object.entries(there)) {
    document.querySelectorAll(`.needs-${name}`).forEach((element) => { element.hidden = !isThere; });
  }
}

hideWhatIsEmpty();
buildTheme();
buildFilters();
buildChoice();
refresh();
if (DATA.samples.picks.length) drawGallery(DATA.samples.picks[0].model, chosen.method);
let width = innerWidth;
document.getElementById("controls").open = width > 640;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawScatter(); } });
