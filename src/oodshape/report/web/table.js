// The leaderboard: filters above, a table that sorts by any column.

const sorted = { column: "Average", metric: "auroc", descending: true };

// An HTML element; text is always text, never markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

function keyed(index) {
  const { color, dashes } = DATA.methods[index];
  return make("span", {}, sketch("svg", { class: "key", viewBox: "0 0 22 10", "aria-hidden": "true" },
    sketch("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: color, "stroke-width": 4, "stroke-dasharray": dashes })),
    DATA.methods[index].name);
}

function chip(text, pressed, onclick, note) {
  const more = note ? [" ", make("small", {}, note)] : [];
  return make("button", { type: "button", class: "chip", "aria-pressed": String(pressed), onclick }, text, ...more);
}

function filterRow(name, filter, values, notes = {}) {
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
  };
  update();
  return row;
}

function viewRow() {
  const choose = (label, options, onchange, value) => make("label", { class: "soft" }, `${label} `,
    make("select", { onchange: (event) => { onchange(event.target.value); refresh(); } },
      ...options.map(([key, text]) => make("option", { value: key, selected: key === value }, text))));
  const toggle = (name, key) => chip(name, view[key], (event) => {
    view[key] = !view[key];
    event.currentTarget.setAttribute("aria-pressed", String(view[key]));
    refresh();
  });
  const measures = [["auroc,fpr95", "AUROC and FPR95"], ...DATA.metrics.map((metric) => [metric, NAMES[metric]])];
  const axes = [["model", "by network"], ["family", "by family"], ["ood", "by OOD set"]];
  return make("div", { class: "filter" },
    choose("Columns", axes, (value) => { view.columns = value; }, view.columns),
    choose("Show", measures, (value) => { view.metrics = value.split(","); }, "auroc,fpr95"),
    make("label", { class: "soft" }, "Search ", make("input", {
      type: "search", size: 12, placeholder: "method",
      oninput: (event) => { view.search = event.target.value; refresh(); },
    })),
    toggle("95 % intervals", "intervals"), DATA.paper ? toggle("Beside the paper", "paper") : undefined);
}

function buildFilters() {
  const groups = Object.fromEntries(DATA.oods.map((ood) => [ood.name, ood.group]));
  const rows = [
    ["Network", "model", DATA.models.map((model) => model.name)],
    ["Family", "family", unique(DATA.models.map((model) => model.family))],
    ["OOD set", "ood", DATA.oods.map((ood) => ood.name), groups],
    ["OOD kind", "group", unique(DATA.oods.map((ood) => ood.group))],
    ["Methods", "kind", unique(DATA.methods.map((method) => method.kind))],
  ];
  const shown = rows.filter(([, , values]) => values.length > 1).map((row) => filterRow(...row));
  document.getElementById("filters").replaceChildren(...shown, viewRow());
}

function sortBy(column, metric) {
  const same = sorted.column === column && sorted.metric === metric;
  const first = metric !== "method" && better(metric) === 1; // the best on top, names from a to z
  Object.assign(sorted, { column, metric, descending: same ? !sorted.descending : first });
  drawBoard();
}

function head(columns) {
  const button = (text, column, metric) => make("th", {
    scope: "col",
    class: metric === view.metrics[0] ? "start" : undefined,
    "aria-sort": sorted.column === column && sorted.metric === metric
      ? (sorted.descending ? "descending" : "ascending") : undefined,
  }, make("button", {
    type: "button", "data-sort": `${column}|${metric}`, onclick: () => sortBy(column, metric),
  }, text));
  const arrow = (metric) => (better(metric) === 1 ? "↑" : "↓");
  const names = columns.map(({ name }) =>
    make("th", { colspan: view.metrics.length, scope: "colgroup", class: "start" }, name));
  const measures = columns.flatMap(({ name }) =>
    view.metrics.map((metric) => button(`${NAMES[metric]}${arrow(metric)}`, name, metric)));
  return make("thead", {}, make("tr", {}, make("th"), ...names),
    make("tr", {}, button("method", "", "method"), ...measures));
}

// What stands behind a mean, for the pointer: each network and OOD set with its interval.
function behind(cell, metric) {
  const at = place(metric);
  return cell.rows.slice(0, 24).map((row) =>
    `${DATA.models[row[MODEL]].name}, ${DATA.oods[row[OOD]].name}: ${percent(row[at])} ` +
    `(${percent(row[at + 1])} to ${percent(row[at + 2])})`).join("\n");
}

function boardCell(cell, method, metric, isFirst) {
  const isGood = cell.rank === 2 || cell.rank === 3;
  const parts = [isGood ? make("u", {}, cell.text) : cell.text];
  if (cell.rows.length && cell.rows.length < cell.full) parts.push(` (${cell.rows.length}/${cell.full})`);
  if (view.intervals && cell.rows.length) {
    parts.push(make("span", {}, `${percent(cell.low)} – ${percent(cell.high)}`));
  }
  const theirs = view.paper ? paperFigure(cell.rows, method, metric) : undefined;
  if (theirs !== undefined) {
    const gap = Number(cell.text) - Number(theirs.toFixed(2)), sign = gap < 0 ? "−" : "+";
    parts.push(make("span", {}, `paper ${theirs.toFixed(2)} (${sign}${Math.abs(gap).toFixed(2)})`));
  }
  const rank = cell.rank === 1 ? "best" : "";
  return make("td", { class: `${rank}${isFirst ? " start" : ""}`.trim() || undefined, title: behind(cell, metric) },
    ...parts);
}

function drawBoard() {
  const rows = rowsShown(), methods = methodsShown(), columns = columnsOf(rows);
  if (sorted.metric !== "method" && !(columns.some(({ name }) => name === sorted.column)
      && view.metrics.includes(sorted.metric))) {
    const metric = view.metrics[0];
    Object.assign(sorted, { column: "Average", metric, descending: better(metric) === 1 });
  }
  const cells = columns.map((column) => view.metrics.map((metric) => cellsOf(column, methods, metric)));
  const order = [...methods];
  if (sorted.metric === "method") {
    order.sort((a, b) => DATA.methods[a].name.localeCompare(DATA.methods[b].name));
    if (sorted.descending) order.reverse();
  } else {
    const key = cells[columns.findIndex(({ name }) => name === sorted.column)][view.metrics.indexOf(sorted.metric)];
    const sign = sorted.descending ? -1 : 1;
    order.sort((a, b) => {
      const [x, y] = [key.get(a).value, key.get(b).value];
      const missing = (x === undefined) - (y === undefined); // no result: last, whatever the direction
      return missing || (x === undefined ? 0 : sign * (x - y));
    });
  }
  const focused = document.activeElement?.getAttribute("data-sort");
  const board = document.getElementById("board");
  const line = (method) => make("tr",
    { class: method === chosen.method ? "chosen" : undefined, "data-method": DATA.methods[method].name },
    make("th", { scope: "row" },
      make("button", { type: "button", onclick: () => chooseMethod(method, true) }, keyed(method))),
    ...cells.flatMap((column) => view.metrics.map((metric, j) =>
      boardCell(column[j].get(method), method, metric, j === 0))));
  board.replaceChildren(head(columns), make("tbody", {}, ...order.map(line)));
  if (focused) [...board.querySelectorAll("[data-sort]")].find((b) => b.dataset.sort === focused)?.focus();
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const over = (at, noun) => count(unique(rows.map((row) => row[at])).length, noun);
  document.getElementById("status").textContent = rows.length === 0 ? "No result has all that is picked above."
    : `${count(methods.length, "method")}; means over ${over(MODEL, "network")} and ${over(OOD, "OOD set")},` +
      " in percent.";
}
