// Tables with the class "sortable" sort by the column whose head is clicked; numbers as numbers, "-" last.
const key = (row, column) => row.cells[column].textContent.trim();
const order = (a, b) => {
  const [x, y] = [parseFloat(a), parseFloat(b)];
  if (a === "-" || b === "-") return (a === "-") - (b === "-");
  return isNaN(x) || isNaN(y) ? a.localeCompare(b) : y - x;
};
for (const table of document.querySelectorAll(".sortable table"))
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const turn = head.getAttribute("aria-sort") === "descending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", turn === 1 ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => turn * order(key(a, column), key(b, column)));
      table.tBodies[0].append(...rows);
    });
  });
