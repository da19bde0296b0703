/** Every hypothesis of the beam search, what became of it, and how its score comes about. */

import { button, fixed, h, piece, s, shown } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { extra, set, setExtra } from "regard/state.js";
import { t } from "regard/strings.js";
import { branch, promptLength, receipt, scrolled } from "regard/views/decoding.js";

const [WIDE, HIGH] = [104, 24];

/** The nodes from the first token to this one. */
function path(nodes, i) {
  const found = [];
  for (let node = nodes[i]; node.parent !== null; node = nodes[node.parent]) found.unshift(node);
  return found;
}

/** The node that is selected, and all that can be walked to from it. */
function selected(ctx) {
  const beam = ctx.run.answer.beam;
  const at = Number(extra("node", "-1"));
  return beam?.nodes[at] ?? beam?.nodes[beam.final];
}

export async function render(root, ctx) {
  const { beam } = ctx.run.answer;
  if (!beam) return root.append(h("p", {}, t("beam.none")), button(t("beam.search"), () => set({ beam: 4, temperature: 0, target: "", prefix: "" }), { class: "run", "data-key": "search" }));
  const node = selected(ctx);
  const own = path(beam.nodes, node.i);
  const best = path(beam.nodes, beam.final);
  const ids = own.map((each) => each.id);
  const open = (compare) => branch(ctx, ids, compare, { t: promptLength(ctx.run) - 1 + Math.max(0, own.length - 1), x: "" });
  root.append(figure(t("beam.tree", { n: beam.nodes.length - 1, w: beam.width }), tree(ctx, beam, node, new Set(best)), { name: "beam", note: t("beam.how") }));
  if (!own.length) return;
  root.append(h("p", { class: "chosen" }, own.map((each) => piece(each)), " ", h("span", { class: "note" }, `${t(`beam.${node.state}`)}${node.reason && node.state === "pruned" ? `: ${reason(node)}` : ""}`)),
    h("p", { class: "ways" }, button(t("beam.open"), () => open(false), { "data-key": "open" }), button(t("beam.beside"), () => open(true), { "data-key": "beside" })),
    figure(t("beam.ledger"), ledger(beam, node, own), { name: "ledger" }),
    node.i === beam.final ? h("p", { class: "note" }, t("beam.isBest")) : figure(t("beam.two"), two(own, best), { name: "two" }));
}

/** Why a hypothesis was given up, in the reader's language. */
const reason = (node) => t(/^not/.test(node.reason) ? "beam.worse" : /settled/.test(node.reason) ? "beam.settled" : /limit/.test(node.reason) ? "beam.limit" : "beam.ended");

/** Columns are steps, rows ranks by what a hypothesis has gathered so far. */
function tree(ctx, beam, node, best) {
  const step = ctx.sel.t - promptLength(ctx.run) + 2;
  const many = beam.nodes.length > 400;
  const seen = beam.nodes.filter((each) => !many || each.state !== "pruned" || each.t === step || each === node);
  const columns = [];
  for (const each of seen) (columns[each.t] ??= []).push(each);
  const places = new Map();
  columns.forEach((column, x) => column.sort((a, b) => b.total - a.total).forEach((each, y) => places.set(each.i, [x * WIDE + 4, y * HIGH + 4])));
  const own = new Set(path(beam.nodes, node.i));
  const tint = (each) => (best.has(each) || each.parent === null ? "var(--gold)" : each.state === "pruned" ? "var(--soft)" : "var(--accent)");
  const dashed = (each) => (each.state === "pruned" ? "4 3" : null);
  const edges = seen.filter((each) => each.parent !== null).map((each) => {
    const [[x, y], [px, py]] = [places.get(each.i), places.get(each.parent)];
    return s("path", { d: `M${px + WIDE - 26} ${py + 10}C${px + WIDE - 8} ${py + 10} ${x - 18} ${y + 10} ${x} ${y + 10}`, fill: "none", stroke: tint(each), "stroke-dasharray": dashed(each), "stroke-width": own.has(each) ? 3 : best.has(each) ? 2 : 1 });
  });
  const boxes = seen.map((each) => {
    const [x, y] = places.get(each.i);
    const label = [...shown(each)];
    const told = `${shown(each)} log p ${fixed(each.log_probability, 3)}, Σ ${fixed(each.total, 3)}, ${t("beam.score")} ${fixed(each.score, 3)}, ${t(`beam.${each.state}`)}${each.reason ? `, ${reason(each)}` : ""}`;
    const pick = () => setExtra({ node: each.i });
    return s("g", { class: "pick node", role: "button", tabindex: each === node ? 0 : -1, "aria-pressed": each === node, "aria-label": told, "data-key": `node-${each.i}`, onclick: pick, onkeydown: (event) => event.key === "Enter" && pick() },
      s("rect", { x, y, width: WIDE - 26, height: 20, rx: 4, fill: each === node ? "var(--light)" : "var(--paper)", stroke: tint(each), "stroke-dasharray": dashed(each), "stroke-width": each === node ? 3 : 1 }),
      s("text", { x: x + 4, y: y + 14, class: "number", fill: each.state === "pruned" ? "var(--soft)" : "var(--ink)" }, label.length > 6 ? label.slice(0, 5).join("") + "…" : label.join("")), s("text", { x: x + WIDE - 29, y: y + 14, class: "number", fill: "var(--soft)", "text-anchor": "end" }, fixed(each.log_probability, 1)), s("title", {}, told));
  });
  const [width, height] = [columns.length * WIDE, Math.max(...columns.map((column) => column?.length ?? 0)) * HIGH + 8];
  return [many ? h("p", { class: "note" }, t("beam.many", { n: beam.nodes.length, t: ctx.sel.t })) : null, h("div", { class: "scroll" }, s("svg", { width, height, role: "group", "aria-label": t("beam.tree", { n: beam.nodes.length - 1, w: beam.width }) }, edges, boxes))];
}

/** The score, line by line. */
function ledger(beam, node, own) {
  const { form, alpha } = beam.penalty;
  let sum = 0;
  const rows = own.map((each, i) => h("tr", {}, h("td", {}, String(i + 1)), h("td", { class: "left" }, piece(each)), h("td", {}, fixed(each.log_probability, 4)), h("td", {}, fixed((sum += each.log_probability), 4))));
  const size = own.length;
  const penalty = form === "google" ? ((5 + size) / 6) ** alpha : size ** alpha;
  const line = (name, formula, value) => h("tr", {}, h("th", { colspan: 2 }, name), h("td", {}, formula), h("td", {}, value));
  return [scrolled(t("beam.ledger"), ["", t("dec.token"), "log p", "Σ log p"], [rows, line(t("beam.penalty"), form === "google" ? `((5 + ${size}) / 6)^${alpha}` : `${size}^${alpha}`, fixed(penalty, 4)), line(t("beam.coverage"), t("beam.noCoverage"), "–"), line(t("beam.score"), `${fixed(sum, 4)} / ${fixed(penalty, 4)}`, fixed(sum / penalty, 4))]), receipt(t("beam.score"), Math.abs(sum / penalty - node.score))];
}

/** Two hypotheses token by token. */
function two(own, best) {
  const first = own.findIndex((each, i) => each.id !== best[i]?.id);
  const rows = [[t("beam.this"), own], [t("beam.best"), best]].flatMap(([name, nodes]) => {
    const cells = (text) => nodes.map((each, i) => h("td", { class: i === first ? "differs" : "" }, text(each)));
    return [h("tr", {}, h("th", { scope: "row" }, name), cells((each) => piece(each))), h("tr", {}, h("th", { scope: "row" }, "log p"), cells((each) => fixed(each.log_probability, 3))), h("tr", {}, h("th", { scope: "row" }, "Σ"), cells((each) => fixed(each.total, 3)))];
  });
  const size = Math.max(own.length, best.length);
  return [scrolled(t("beam.two"), ["", ...Array.from({ length: size }, (_, i) => String(i + 1))], rows), h("p", { class: "note" }, first < 0 ? t("beam.begins") : t("beam.differ", { n: first + 1 }))];
}

/** Walks the tree: before, after, above and below. */
const walk = (find) => (ctx) => {
  const { beam } = ctx.run.answer;
  const node = beam && selected(ctx);
  const to = node && find(beam.nodes, node);
  if (to) setExtra({ node: to.i });
};
const beside = (nodes, node, way) => {
  const column = nodes.filter((each) => each.t === node.t).sort((a, b) => b.total - a.total);
  return column[column.indexOf(node) + way];
};
export const keys = {
  ArrowLeft: walk((nodes, node) => nodes[node.parent]),
  ArrowRight: walk((nodes, node) => nodes.filter((each) => each.parent === node.i).sort((a, b) => b.total - a.total)[0]),
  ArrowUp: walk((nodes, node) => beside(nodes, node, -1)),
  ArrowDown: walk((nodes, node) => beside(nodes, node, 1)),
};
