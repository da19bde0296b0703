/** Lays several heads of a layer over each other: where one token looks, with a colour for each head. */

import { button, enlarged, fixed, h, s } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

/** Colours that colour-blind readers can tell apart; the number of the head stands beside each. */
const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56a4d9", "#9467bd", "#8c8c8c"];
const SQUARE = 13;
const LEAST = 0.02;

/** Returns the choice of heads and, for the chosen ones, their lines and squares; `numbers` has the weights of all heads. */
export function overlay(ctx, { title, labels, titles, weights }) {
  const count = ctx.model.model.heads;
  const chosen = extra("heads").split(",").filter((each) => /^\d+$/.test(each) && Number(each) < count).map(Number);
  const keep = (heads) => setExtra({ heads: heads.sort((a, b) => a - b).join(",") });
  const toggle = (head) => keep(chosen.includes(head) ? chosen.filter((each) => each !== head) : [...chosen, head]);
  const swatch = (head) => h("i", { class: "swatch", style: { background: hue(head) } });
  const choices = h(
    "div", { class: "selects", role: "group", "aria-label": t("att.overlay") }, h("span", { class: "note" }, t("att.overlay")),
    Array.from({ length: count }, (_, head) => button([swatch(head), String(head)], () => toggle(head), { "aria-pressed": chosen.includes(head), "data-key": `overlay-${head}` })),
    chosen.length < count ? button(t("att.overlayAll"), () => keep(Array.from({ length: count }, (_, i) => i)), { "data-key": "overlay-all" }) : button(t("space.none"), () => keep([]), { "data-key": "overlay-none" }),
  );
  if (!chosen.length) return [choices];
  const token = labels[0][ctx.position] ?? "";
  return [choices, figure(t("att.overlayOf", { title, token }), picture(ctx, chosen, labels, titles, weights), { note: t("att.overlayHow"), name: "heads" })];
}

const hue = (head) => HUES[head % HUES.length];

function picture(ctx, heads, labels, titles, weights) {
  const large = enlarged();
  const cut = (text) => ([...text].length > 15 ? [...text].slice(0, 14).join("") + "…" : text);
  const [left, right] = labels.map((list, side) => 12 + 7.4 * large * Math.max(...[...list, titles[side]].map((each) => Math.min(15, [...each].length))));
  const [rows, columns] = labels.map((list) => list.length);
  const step = large * Math.max(SQUARE, Math.min(22, 640 / Math.max(rows, columns)));
  const gap = innerWidth < 500 ? 60 : 150 * large;
  const squares = heads.length * (SQUARE + 1);
  const [start, width, height] = [left + gap, left + gap + squares + right, 40 + step * Math.max(rows, columns)];
  const y = (i) => 40 + i * step;
  const row = ctx.position;
  const cells = heads.flatMap((head, n) => Array.from({ length: columns }, (_, j) => ({ head, n, j, weight: weights.at(head, row, j) })));
  const told = ({ head, j, weight }) => s("title", {}, `${t("head")} ${head}: ${labels[0][row]} → ${labels[1][j]} ${fixed(weight, 3)}`);
  const line = (each) => s("path", {
    d: `M${left} ${y(row) - 4} C${left + gap / 2} ${y(row) - 4} ${left + gap / 2} ${y(each.j) - 4} ${start} ${y(each.j) - 4}`, fill: "none", stroke: hue(each.head),
    "stroke-width": (0.8 + 4 * Math.abs(each.weight)).toFixed(2), opacity: Math.min(1, 0.25 + Math.abs(each.weight)).toFixed(2), "stroke-dasharray": each.weight < 0 ? "4 3" : null,
  }, told(each));
  const square = (each) => s("rect", {
    x: start + 2 + each.n * (SQUARE + 1), y: y(each.j) - 4 - SQUARE / 2, width: SQUARE, height: SQUARE, stroke: "var(--line)", "stroke-width": 0.5, fill: hue(each.head),
    "fill-opacity": Math.min(1, Math.abs(each.weight)).toFixed(3), "data-head": each.head, "data-key-place": each.j,
  }, told(each));
  const name = (side, i, text, more) => s("text", { x: side ? start + squares + 6 : left - 5, y: y(i), "text-anchor": side ? "start" : "end", class: "token", fill: "var(--ink)", ...more }, text);
  const queries = labels[0].map((label, i) => name(0, i, cut(label), { class: "token pick", fill: i === row ? "var(--gold)" : "var(--ink)", "font-weight": i === row ? 700 : 400, onclick: () => ctx.follow(ctx.stack.text, i) }));
  const numbers = heads.map((head, n) => s("text", { x: start + 2 + n * (SQUARE + 1) + SQUARE / 2, y: 22, "text-anchor": "middle", class: "token", fill: "var(--ink)" }, String(head)));
  const drawing = s(
    "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary(heads, labels, row, weights) },
    ["q", "k"].map((role, side) => s("text", { x: side ? start + squares + 6 : left - 5, y: 12, "text-anchor": side ? "start" : "end", class: "token", fill: `var(--${role})` }, titles[side])),
    cells.filter((each) => Math.abs(each.weight) >= LEAST).map(line), cells.map(square), numbers, queries, labels[1].map((label, j) => name(1, j, cut(label))),
  );
  return h("div", { class: "lines" }, h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": t("att.overlay") }, drawing));
}

/** The picture in words: where each head looks most. */
const summary = (heads, labels, row, weights) => heads.map((head) => {
  const best = labels[1].reduce((most, _, j) => (Math.abs(weights.at(head, row, j)) > Math.abs(weights.at(head, row, most)) ? j : most), 0);
  return `${t("head")} ${head}: ${labels[0][row]} → ${labels[1][best]} ${fixed(weights.at(head, row, best), 2)}`;
}).join("; ");
