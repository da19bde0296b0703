/** Draws a vector as a strip of coloured cells, with its first numbers. */

import { color, ink, scaleOf } from "regard/color-scales.js";
import { enlarged, fixed, h, s } from "regard/dom-elements.js";
import { t } from "regard/strings.js";

const WIDTH = 42;
const HEIGHT = 22;
const PRINTED = 16;

/** A strip. role: x, q, k, v, out or mask, the colour of its label; mark: a cell with a golden frame; onpick: what a click on a cell does. */
export function strip(vector, how = {}) {
  const numbers = Array.from(vector);
  const scale = how.scale ?? scaleOf(numbers, true);
  const printed = how.all || numbers.length <= PRINTED ? numbers.length : 8;
  const thin = Math.max(2, Math.min(8, 320 / Math.max(1, numbers.length - printed)));
  const x = (i) => (i < printed ? i * WIDTH : printed * WIDTH + 4 + (i - printed) * thin);
  const cells = numbers.map((value, i) => {
    const wide = i < printed;
    const cell = s("rect", { x: x(i), y: 1, width: wide ? WIDTH - 1 : thin, height: HEIGHT, fill: color(value, scale), ...(i === how.mark ? { stroke: "var(--gold)", "stroke-width": 2 } : {}) }, s("title", {}, `[${i}] ${fixed(value, 5)}`));
    if (how.onpick) {
      cell.classList.add("pick");
      cell.addEventListener("click", () => how.onpick?.(i));
    }
    return wide ? [cell, s("text", { x: x(i) + WIDTH / 2, y: 16, fill: ink(value, scale), "text-anchor": "middle", class: "number", "pointer-events": "none" }, fixed(value, how.digits ?? 2))] : cell;
  });
  const width = x(numbers.length) + 2;
  const picture = s("svg", { width: width * enlarged(), height: (HEIGHT + 2) * enlarged(), viewBox: `0 0 ${width} ${HEIGHT + 2}`, role: "img", "aria-label": `${how.label ?? t("vector")}: ${numbers.slice(0, 8).map((v) => fixed(v, 2)).join(", ")}${numbers.length > 8 ? ` … (${numbers.length})` : ""}` }, cells);
  return h("div", { class: "strip" }, how.label ? h("span", { class: `name ${how.role ?? ""}` }, how.label) : null, h("span", { class: "scroll", tabindex: width * enlarged() > innerWidth - 40 ? 0 : null }, picture), how.note ? h("span", { class: "note" }, how.note) : null);
}

/** Strips under one another on one scale, with the sign of the operation before each. */
export function strips(rows, how = {}) {
  const scale = scaleOf(rows.flatMap((row) => Array.from(row.vector)), how.signed ?? true);
  return h("div", { class: "strips" }, rows.map((row) => h("div", { class: "line" }, h("span", { class: "sign" }, row.sign ?? ""), strip(row.vector, { ...row, scale, all: how.all }))), h("p", { class: "note" }, t("range", { low: fixed(scale.signed ? -scale.high : 0, 2), high: fixed(scale.high, 2) })));
}

/** Bars: names and amounts, the chosen one golden. */
export function bars(rows, how = {}) {
  const high = how.high ?? (Math.max(...rows.map((row) => Math.abs(row.value)).filter(Number.isFinite)) || 1);
  return h(
    "div",
    { class: "bars", role: "list", "aria-label": how.label ?? "" },
    rows.map((row) => {
      const share = Math.min(100, Math.max(0, (100 * Math.abs(row.value)) / high));
      const label = row.onpick ? h("button", { type: "button", onclick: row.onpick }, row.label) : row.label;
      return h("div", { class: `bar ${row.mark ? "marked" : ""}`, role: "listitem" }, h("span", { class: "name" }, label), h("span", { class: "track" }, h("i", { class: row.value < 0 ? "minus" : "", style: { width: `${share}%` } })), h("span", { class: "number" }, row.text ?? fixed(row.value, 3)), row.note ? h("span", { class: "note" }, row.note) : null);
    }),
  );
}
