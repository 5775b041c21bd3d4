// The bar above the leaderboard: menus of networks, sets and methods, what is shown, and the table to take away.

// The chips of one filter; `told` hears of every change.
function filterRow(name, filter, values, notes, told) {
  const row = make("fieldset", { class: "filter", "data-filter": filter }, make("legend", {}, name));
  const update = () => {
    const toggle = (value) => () => {
      if (!picked[filter].delete(value)) picked[filter].add(value);
      if (picked[filter].size === values.length) picked[filter].clear();
      update();
      row.querySelectorAll("button")[picked[filter].size ? values.indexOf(value) + 1 : 0].focus();
      refresh();
    };
    const clear = () => { picked[filter].clear(); update(); row.querySelector("button").focus(); refresh(); };
    const chips = values.map((value) => chip(value, picked[filter].has(value), toggle(value), notes[value]));
    row.replaceChildren(row.firstChild, chip("all", picked[filter].size === 0, clear), ...chips);
    told();
  };
  update();
  return row;
}

// A menu that opens below its name, which says what is picked; nothing where there is nothing to pick.
function menu(name, rows) {
  const shown = rows.filter(([, , values]) => values.length > 1);
  if (!shown.length) return undefined;
  const said = make("b", {});
  const tell = () => {
    const all = shown.flatMap(([, filter]) => [...picked[filter]]);
    said.textContent = all.length ? all.slice(0, 2).join(", ") + (all.length > 2 ? ` +${all.length - 2}` : "") : "all";
  };
  const box = make("details", { class: "menu", name: "menu" }, make("summary", {}, `${name} `, said));
  box.append(make("div", { class: "drop" },
    ...shown.map(([label, filter, values, notes = {}]) => filterRow(label, filter, values, notes, tell))));
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !box.open) return;
    box.open = false;
    box.querySelector("summary").focus();
  });
  return box;
}

document.addEventListener("click", (event) => { // a click outside an open menu closes it
  document.querySelectorAll(".menu[open]").forEach((box) => {
    if (!box.contains(event.target) && event.target.isConnected) box.open = false;
  });
});

function choice(label, options, value, onchange) {
  return make("select", { "aria-label": label, onchange: (event) => { onchange(event.target.value); refresh(); } },
    ...options.map(([key, text]) => make("option", { value: key, selected: key === value }, text)));
}

function toggle(name, key) {
  return chip(name, view[key], (event) => {
    view[key] = !view[key];
    event.currentTarget.setAttribute("aria-pressed", String(view[key]));
    refresh();
  });
}

function buildFilters() {
  const groups = Object.fromEntries(DATA.oods.map((ood) => [ood.name, ood.group]));
  const measures = [...(DATA.overview ? [[String(DATA.overview), "detection and cost"]] : []),
    [String(DATA.shown), DATA.shown.map(titled).join(" and ")],
    ...DATA.metrics.map(({ name, title }) => [name, title])];
  const ways = [...(DATA.overview ? [["average", "average"]] : []), ["model", "by network"], ["family", "by family"], ["ood", "by OOD set"]];
  const parts = [
    menu("Networks", [["Network", "model", DATA.models.map((model) => model.name)],
      ["Family", "family", unique(DATA.models.map((model) => model.family))]]),
    menu("OOD sets", [["OOD set", "ood", DATA.oods.map((ood) => ood.name), groups],
      ["Kind", "group", unique(DATA.oods.map((ood) => ood.group)).filter(Boolean)]]),
    menu("Methods", [["Methods", "kind", unique(DATA.methods.map((method) => method.kind))]]),
    make("input", {
      type: "search", size: 8, placeholder: "method", "aria-label": "Search a method", value: view.search,
      oninput: (event) => { view.search = event.target.value; refresh(); },
    }),
    choice("Columns", ways, view.columns, (value) => {
      view.columns = value;
      view.metrics = value === "average" ? DATA.overview : String(view.metrics) === String(DATA.overview) ? DATA.shown : view.metrics;
      setTimeout(buildFilters);
    }),
    choice("Figures", measures, String(view.metrics), (value) => { view.metrics = value.split(","); }),
    toggle("95 % intervals", "intervals"),
    make("span", { class: "take" }, taking("Copy", copyTable), taking("CSV", saveTable)),
  ];
  document.getElementById("filters").replaceChildren(...parts.filter(Boolean));
}

// A button that says for a moment that it was done.
function taking(name, take) {
  return make("button", { type: "button", class: "chip", "aria-live": "polite", onclick: async (event) => {
    const button = event.currentTarget, done = await take();
    button.textContent = done;
    setTimeout(() => { button.textContent = name; }, 1500);
  } }, name);
}

// The table as it is shown: rows of text, the heads first; intervals where these are shown.
const taken = { rows: [] };

async function copyTable() {
  const text = taken.rows.map((row) => row.map((cell) => cell.replace(/[\t\n]/g, " ")).join("\t")).join("\n");
  try {
    await navigator.clipboard.writeText(text);
  } catch { // an older browser, or one that wants to be asked
    const area = make("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    if (!isDone) return "Not allowed";
  }
  return "Copied";
}

function csv() {
  const quoted = (cell) => {
    const plain = /^[=+@]/.test(cell) ? `'${cell}` : cell; // a spreadsheet would take it for a formula
    return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  return `${taken.rows.map((row) => row.map(quoted).join(",")).join("\n")}\n`;
}

function saveTable() {
  const address = `data:text/csv;charset=utf-8,${encodeURIComponent(csv())}`;
  make("a", { href: address, download: "leaderboard.csv" }).click();
  return "Saved";
}
