// What the reader has picked, in the address after #: a copied link shows the same again.

const yes = (value) => (value ? "1" : "");

// Every part of the state as text, by its name in the address.
function stateNow() {
  const named = (list, index) => list[index]?.name ?? "none";
  return {
    ...Object.fromEntries(Object.entries(picked).map(([filter, some]) => [filter, JSON.stringify([...some])])),
    columns: view.columns, show: String(view.metrics), intervals: yes(view.intervals),
    search: view.search, sort: JSON.stringify([sorted.column, sorted.metric, sorted.descending]),
    method: named(DATA.methods, chosen.method), other: named(DATA.methods, chosen.other),
    network: named(DATA.models, chosen.network),
  };
}

let usual = {};

function writeState(section) {
  const now = stateNow(), words = new URLSearchParams();
  for (const [name, value] of Object.entries(now)) if (value !== usual[name]) words.set(name, value);
  if (section && String(words)) words.set("at", section);
  const end = String(words) || (section ?? "");
  try {
    history.replaceState(null, "", location.href.split("#")[0] + (end ? `#${end}` : ""));
  } catch { /* a browser that keeps addresses to itself */ }
}

// The state of the address; names that this page does not know are left out.
function readState() {
  const words = new URLSearchParams(location.hash.slice(1)), is = { ...usual };
  for (const name of Object.keys(usual)) if (words.has(name)) is[name] = words.get(name);
  const list = (text) => { try { return [].concat(JSON.parse(text)); } catch { return []; } };
  const find = (all, name, other) => { const at = all.findIndex((each) => each.name === name); return at < 0 ? other : at; };
  const known = { model: DATA.models.map((model) => model.name), family: DATA.models.map((model) => model.family),
    ood: DATA.oods.map((ood) => ood.name), group: DATA.oods.map((ood) => ood.group),
    kind: DATA.methods.map((method) => method.kind) };
  for (const [filter, some] of Object.entries(picked)) {
    some.clear();
    list(is[filter]).filter((value) => known[filter].includes(value)).forEach((value) => some.add(value));
  }
  view.columns = ["average", "model", "family", "ood"].includes(is.columns) ? is.columns : usual.columns;
  const metrics = is.show.split(",");
  view.metrics = metrics.every((metric) => METRICS.has(metric)) ? metrics : usual.show.split(",");
  Object.assign(view, { intervals: is.intervals === "1", search: is.search });
  const [column, metric, descending] = list(is.sort);
  if (metric === "method" || METRICS.has(metric)) Object.assign(sorted, { column, metric, descending: descending === true });
  chosen.method = find(DATA.methods, is.method, chosen.method);
  chosen.other = is.other === "none" ? -1 : find(DATA.methods, is.other, chosen.other);
  chosen.network = find(DATA.models, is.network, 0);
  return words.get("at");
}

const goTo = (section) => { if (section) document.getElementById(section)?.scrollIntoView(); };

function followState() {
  const section = readState();
  buildFilters();
  buildChoice();
  refresh();
  return section;
}

// A link within the page names a section: the state goes along with it.
addEventListener("hashchange", () => {
  if (location.hash.includes("=")) goTo(followState());
  else writeState(location.hash.slice(1));
});
