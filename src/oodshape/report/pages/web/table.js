// The leaderboard: a table that sorts by any column.

// What the reader sorts by; it is kept while a filter hides that column.
const sorted = { column: "Average", metric: DATA.main, descending: better(DATA.main) === 1 };

function keyed(index, { color, dashes } = DATA.methods[index]) {
  return make("span", {}, sketch("svg", { class: "key", viewBox: "0 0 22 10", "aria-hidden": "true" },
    sketch("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: color, "stroke-width": 4, "stroke-dasharray": dashes })),
    DATA.methods[index].title);
}

// The order that these columns allow: the reader's own, or the first column by the same metric.
function orderOf(columns) {
  if (sorted.metric === "method") return sorted;
  const column = columns.some(({ name }) => name === sorted.column) ? sorted.column : columns[0].name;
  if (view.metrics.includes(sorted.metric)) return { ...sorted, column };
  const metric = view.metrics[0];
  return { column, metric, descending: better(metric) === 1 };
}

function sortBy(column, metric, now) {
  const same = now.column === column && now.metric === metric;
  const first = metric !== "method" && better(metric) === 1; // the best on top, names from a to z
  Object.assign(sorted, { column, metric, descending: same ? !now.descending : first });
  drawBoard();
  cue();
  writeState();
}

function head(columns, now, ranked) {
  const button = (text, column, metric) => make("th", {
    scope: "col",
    title: METRICS.get(metric)?.note,
    class: metric === view.metrics[0] ? "start" : undefined,
    "aria-sort": now.column === column && now.metric === metric
      ? (now.descending ? "descending" : "ascending") : undefined,
  }, make("button", {
    type: "button", "data-sort": `${column}|${metric}`, onclick: () => sortBy(column, metric, now),
  }, text));
  const arrow = (metric) => (better(metric) === 1 ? "↑" : "↓");
  const names = columns.map(({ name }) =>
    make("th", { colspan: view.metrics.length, scope: "colgroup", class: "start" }, name));
  const measures = columns.flatMap(({ name }) =>
    view.metrics.map((metric) => button(`${titled(metric)}${arrow(metric)}`, name, metric)));
  return make("thead", {}, make("tr", {}, make("td"), make("td"), ...names),
    make("tr", {}, make("th", { scope: "col", title: `place by ${ranked}` }, "#"), button("method", "", "method"),
      ...measures));
}

// What stands behind a mean, for the pointer: each network and OOD set with its interval.
function behind(cell, metric) {
  const at = place(metric), shown = (value) => figure(value, metric);
  const limits = (row) => (hasInterval(metric) ? ` (${shown(row[at + 1])} to ${shown(row[at + 2])})` : "");
  return cell.rows.slice(0, 24).map((row) =>
    `${DATA.models[row[MODEL]].name}, ${DATA.oods[row[OOD]].name}: ${shown(row[at])}${limits(row)}`).join("\n");
}

function boardCell(cell, method, metric, isFirst) {
  const isGood = cell.rank === 2 || cell.rank === 3;
  const parts = [isGood ? make("u", {}, cell.text) : cell.text];
  if (cell.rows.length && cell.rows.length < cell.full) parts.push(` (${cell.rows.length}/${cell.full})`);
  if (metric === DATA.main && cell.rank !== 1 && cell.rows.length === cell.full && isTied(cell.rows, method)) {
    parts.push(make("abbr", { class: "tied", title: "tied with the best: no difference at 5 % on the same images" }, " ="));
  }
  if (view.intervals && cell.rows.length && hasInterval(metric)) {
    parts.push(make("span", {}, `${figure(cell.low, metric)} – ${figure(cell.high, metric)}`));
  }
  const rank = cell.rank === 1 ? "best" : "";
  const told = (event) => { event.currentTarget.title ||= behind(cell, metric); }; // long, so only where it is pointed at
  return make("td", { class: `${rank}${isFirst ? " start" : ""}`.trim() || undefined, onpointerenter: told }, ...parts);
}

function drawBoard() {
  const rows = rowsShown(), methods = methodsShown(rows), columns = columnsOf(rows), now = orderOf(columns);
  tell(rows, methods);
  taken.rows = [];
  if (!methods.length) return;
  const cells = columns.map((column) => view.metrics.map((metric) => cellsOf(column, methods, metric)));
  const order = [...methods];
  const [column, at] = [columns.findIndex(({ name }) => name === now.column), view.metrics.indexOf(now.metric)]
    .map((found) => Math.max(0, found)); // sorted by name: places by the first column
  const key = cells[column][at];
  if (now.metric === "method") {
    order.sort((a, b) => DATA.methods[a].title.localeCompare(DATA.methods[b].title));
    if (now.descending) order.reverse();
  } else {
    const sign = now.descending ? -1 : 1;
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
    make("td", {}, String(key.get(method).rank || "–")), make("th", { scope: "row" },
      make("button", { type: "button", onclick: () => chooseMethod(method, true) }, keyed(method))),
    ...cells.flatMap((column) => view.metrics.map((metric, j) =>
      boardCell(column[j].get(method), method, metric, j === 0))));
  const ranked = `${titled(view.metrics[at])}, ${columns[column].name}`;
  board.replaceChildren(head(columns, now, ranked), make("tbody", {}, ...order.map(line)));
  keepTable(columns, cells, order, key);
  document.querySelector(".wide").style.setProperty("--columns", columns.length * view.metrics.length);
  if (focused) [...board.querySelectorAll("[data-sort]")].find((b) => b.dataset.sort === focused)?.focus();
}

// The same as text, to be copied or saved; where intervals are shown, their limits have columns of their own.
function keepTable(columns, cells, order, key) {
  const ends = (metric) => (view.intervals && hasInterval(metric) ? ["", " low", " high"] : [""]);
  const heads = columns.flatMap(({ name }) =>
    view.metrics.flatMap((metric) => ends(metric).map((end) => `${name} ${titled(metric)}${end}`)));
  const texts = (cell, metric) => [cell.text, figure(cell.low, metric), figure(cell.high, metric)].slice(0, ends(metric).length);
  taken.rows = [["place", "method", ...heads], ...order.map((method) => [String(key.get(method).rank || ""),
    DATA.methods[method].name, ...cells.flatMap((column) => column.flatMap((found, j) => {
      const cell = found.get(method), metric = view.metrics[j];
      return cell.rows.length ? texts(cell, metric) : ends(metric).map(() => "");
    }))])];
}

// What the figures are means of, or that there are none; a way back from every filter.
function tell(rows, methods) {
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const found = (at) => unique(rows.map((row) => row[at])), oods = found(OOD), networks = found(MODEL);
  document.body.classList.toggle("nothing", !methods.length);
  document.getElementById("reset").hidden = !view.search && Object.values(picked).every((some) => !some.size);
  document.getElementById("status").textContent = !methods.length ? "No result has all that is picked above."
    : `${count(methods.length, "method")}; means over ${count(networks.length, "network")} and ` +
      `${count(oods.length, "OOD set")}. =: tied with the best ${titled(DATA.main)} (5 %).`;
  const kinds = [...grouped(oods, (ood) => DATA.oods[ood].group)]
    .map(([kind, some]) => `${kind ? `${kind}: ` : ""}${some.map((ood) => DATA.oods[ood].name).join(", ")}`);
  document.getElementById("over").textContent = `Shown are means over ${count(networks.length, "network")} ` +
    `(${networks.map((model) => DATA.models[model].name).join(", ")}) and ${count(oods.length, "OOD set")} ` +
    `(${kinds.join("; ")}). Each network counts the same in an average.`;
}

function resetFilters() {
  Object.values(picked).forEach((some) => some.clear());
  view.search = "";
  buildFilters();
  refresh();
  document.querySelector("#filters summary, #filters select").focus();
}

// A shadow and a word where the table goes on to the right.
function cue() {
  const box = document.querySelector("#leaderboard .scroll"), isWide = box.scrollWidth > box.clientWidth + 1;
  document.getElementById("cue").hidden = !isWide;
  box.parentElement.classList.toggle("more", isWide && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
}
