"use strict";
// What the scripts of every page are made of: elements, axes, lines, the switch between light and dark.

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

function chip(text, pressed, onclick, note) {
  const more = note ? [" ", make("small", {}, note)] : [];
  return make("button", { type: "button", class: "chip", "aria-pressed": String(pressed), onclick }, text, ...more);
}

function sketch(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== "") element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// About `count` round numbers from low to high.
function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * power).find((part) => part >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const length = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

// Axes with grid lines and numbers; gives the <svg> and the functions from values to pixels.
function axes({ width, height, x, y, label, xTicks, yTicks, xLabel, yLabel, toX = (v) => v, toY = (v) => v }) {
  const left = yTicks ? 44 : 8, right = 12, top = 8, bottom = 34;
  const scale = (to, [low, high], from, size) =>
    (value) => from + (size * (to(value) - to(low))) / (to(high) - to(low));
  const X = scale(toX, x, left, width - left - right), Y = scale(toY, y, height - bottom, -(height - top - bottom));
  const svg = sketch("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const text = (words, at) => sketch("text", { class: "tick", ...at }, String(words));
  for (const value of xTicks) {
    svg.append(sketch("line", { class: "grid", x1: X(value), x2: X(value), y1: top, y2: height - bottom }),
      text(value, { x: X(value), y: height - bottom + 13, "text-anchor": "middle" }));
  }
  for (const value of yTicks || []) {
    svg.append(sketch("line", { class: "grid", x1: left, x2: width - right, y1: Y(value), y2: Y(value) }),
      text(value, { x: left - 5, y: Y(value) + 3.5, "text-anchor": "end" }));
  }
  svg.append(text(xLabel, { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }));
  if (yLabel) {
    const middle = (top + height - bottom) / 2;
    svg.append(text(yLabel, { transform: `translate(11 ${middle}) rotate(-90)`, "text-anchor": "middle" }));
  }
  return { svg, X, Y, box: { left, right: width - right, top, bottom: height - bottom } };
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function line(points, { color, dashes }, width = 2) {
  return sketch("path", {
    d: path(points), fill: "none", stroke: color, "stroke-width": width, "stroke-dasharray": dashes,
  });
}

function buildTheme() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const usual = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const isDark = () => (root.dataset.theme ?? usual()) === "dark";
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  label();
}
