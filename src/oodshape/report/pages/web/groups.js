// Classes and folders at the slider's threshold: how many of their images are rejected, and which stand out.

const ROWS = 15, CLEAR = 0.01; // as in Python
const logs = [0];

function logFactorial(n) {
  while (logs.length <= n) logs.push(logs.at(-1) + Math.log(logs.length));
  return logs[n];
}
const logChoose = (n, k) => logFactorial(n) - logFactorial(k) - logFactorial(n - k);

// The chance that of n images drawn from `total`, of which `out` are rejected, r or more are (Fisher's exact test).
function tail(r, n, out, total) {
  let sum = 0;
  for (let k = Math.max(r, n + out - total); k <= Math.min(n, out); k += 1) {
    sum += Math.exp(logChoose(out, k) + logChoose(total - out, n - k) - logChoose(total, n));
  }
  return r === 0 ? 1 : sum;
}

// Which chances are clear, all of them counted (Holm).
function standsOut(chances) {
  const order = chances.map((_, i) => i).sort((a, b) => chances[a] - chances[b]), found = chances.map(() => false);
  for (const [place, i] of order.entries()) {
    if (chances.length < 2 || chances[i] * (chances.length - place) >= CLEAR) break;
    found[i] = true;
  }
  return found;
}

function rejectedAt(steps, tick) {
  let sum = 0;
  for (let i = 0; i < steps.length && steps[i] <= tick; i += 2) sum += steps[i + 1];
  return sum;
}

function drawGroups() {
  const at = document.getElementById("groups-at"), alpha = percentOf(DATA.ticks[state.tick]);
  if (!at) return;
  if (!DATA.groups) {
    at.textContent = `At alpha = ${percentOf(DATA.alpha)}, that of the guard: there are too many groups to follow the slider.`;
    return;
  }
  at.textContent = state.tick === own ? `At alpha = ${alpha}, that of the guard; the slider above changes it.`
    : `At alpha = ${alpha}, as set above; that of the guard is ${percentOf(DATA.alpha)}.`;
  DATA.groups.forEach((groups, place) => {
    const table = document.querySelector(`[data-groups="${place}"] table`);
    const rows = groups.map(([name, images, steps]) => ({ name, images, rejected: rejectedAt(steps, state.tick) }));
    const [total, out] = ["images", "rejected"].map((part) => rows.reduce((sum, row) => sum + row[part], 0));
    standsOut(rows.map((row) => tail(row.rejected, row.images, out, total))).forEach((is, i) => { rows[i].marked = is; });
    rows.sort((a, b) => b.rejected / b.images - a.rejected / a.images || b.images - a.images || (a.name < b.name ? -1 : 1));
    const kinds = [...table.querySelectorAll("thead th")].map((head) => head.className || undefined);
    table.tBodies[0].replaceChildren(...rows.slice(0, ROWS).map(({ name, images, rejected, marked }) => make("tr", {},
      ...[name, images.toLocaleString("en"), rejected.toLocaleString("en"), share(rejected, images), marked ? "marked" : ""]
        .map((text, i) => make("td", { class: kinds[i] }, text)))));
  });
}
