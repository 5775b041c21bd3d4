// Tables with the class "sortable" sort by the column whose head is clicked: numbers the largest first, words from A,
// a second click turns the order; "-" is always last. In a block: the theme's script has a `key` of its own.
{
  const key = (row, column) => row.cells[column].textContent.trim();
  const order = (a, b, turn) => {
    const [x, y] = [parseFloat(a), parseFloat(b)];
    if (a === "-" || b === "-") return (a === "-") - (b === "-");
    return turn * (isNaN(x) || isNaN(y) ? a.localeCompare(b) : y - x);
  };
  for (const table of document.querySelectorAll(".sortable table"))
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rows = [...table.tBodies[0].rows], turn = head.dataset.turn === "1" ? -1 : 1;
        for (const other of table.tHead.rows[0].cells) {
          other.removeAttribute("aria-sort");
          delete other.dataset.turn;
        }
        rows.sort((a, b) => order(key(a, column), key(b, column), turn));
        const isWords = isNaN(parseFloat(key(rows[0], column)));
        head.dataset.turn = turn;
        head.setAttribute("aria-sort", (turn === 1) === isWords ? "ascending" : "descending");
        table.tBodies[0].append(...rows);
      });
    });
}
