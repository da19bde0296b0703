/** Shows every hypothesis of the beam search, its outcome, and how its score is computed. */

import { fixed, h, piece, s, shown } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { receipt } from "regard/math-formulas.js";
import { offline } from "regard/model-data-client.js";
import { extra, set, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { act, branch, first, table } from "regard/views/decoding-steps.js";

const [WIDE, HIGH] = [104, 24];
const ranked = (nodes) => nodes.sort((a, b) => b.total - a.total);
const about = (node) => t(`beam.${node.state}`) + (node.reason ? `: ${t(`beam.${node.reason.split(" ")[0]}`, { n: node.t + 1 })}` : "");

/** The search and the node that is selected. */
function chosen(ctx) {
  const beam = ctx.run.answer.beam ?? { nodes: [] };
  return { beam, node: beam.nodes[parseInt(extra("node"))] ?? beam.nodes[beam.final] };
}

/** The nodes from the first token to this one. */
const path = (nodes, node) => (node.parent === null ? [] : [...path(nodes, nodes[node.parent]), node]);

export async function render(root, ctx) {
  const { beam, node } = chosen(ctx);
  if (!node) return root.append(h("p", {}, t("beam.none")), offline ? "" : act("beam.try", () => set({ beam: 4, temperature: 0, target: "", prefix: "" })));
  const [own, best] = [path(beam.nodes, node), path(beam.nodes, beam.nodes[beam.final])];
  const open = (compare) => branch(ctx, own, compare, { t: first(ctx.run) + Math.max(0, own.length - 1), x: "" });
  root.append(figure(t("beam.tree", { n: beam.nodes.length - 1, w: beam.width }), tree(ctx, beam, node, own, best), { note: t("beam.how") }), h("p", { class: "text" }, own.map((each) => piece(each)), h("span", { class: "note" }, " ", about(node))));
  if (own.length) root.append(offline ? "" : h("p", { class: "ways" }, act("beam.open", () => open()), act("beam.beside", () => open(true))), figure(t("beam.ledger"), ledger(beam, node, own, best)));
}

/** Columns are steps, rows ranks by what a hypothesis has gathered so far. */
function tree(ctx, { nodes }, node, own, best) {
  const many = nodes.length > 400;
  const seen = ranked(nodes.filter((each) => !many || each.state !== "pruned" || each === node || each.t === ctx.sel.t - first(ctx.run) + 1));
  const counts = [];
  const places = new Map(seen.map((each) => [each.i, [each.t * WIDE + 4, (counts[each.t] = (counts[each.t] ?? -1) + 1) * HIGH + 4]]));
  const line = (each) => ({ stroke: best.includes(each) || each.parent === null ? "var(--gold)" : each.state === "pruned" ? "var(--soft)" : "var(--accent)", "stroke-dasharray": each.state === "pruned" ? "4 3" : null, "stroke-width": own.includes(each) ? 3 : 1 });
  const drawn = seen.map((each) => {
    const [x, y] = places.get(each.i);
    const [px, py] = places.get(each.parent) ?? [x - WIDE, y];
    const [label, pick] = [[...shown(each)], () => setExtra({ node: each.i })];
    const told = `${shown(each)}, log p ${fixed(each.log_probability, 3)}, Σ ${fixed(each.total, 3)}, ${t("beam.score")} ${fixed(each.score, 3)}, ${about(each)}`;
    const text = (at, words, anchor) => s("text", { x: x + at, y: y + 14, class: "number", "text-anchor": anchor, fill: each.state === "pruned" ? "var(--soft)" : "var(--ink)" }, words);
    return s("g", { class: "pick", role: "button", tabindex: each === node ? 0 : -1, "aria-pressed": each === node, "data-key": `node${each.i}`, onclick: pick },
      s("path", { d: `M${px + WIDE - 26} ${py + 10}C${px + WIDE - 8} ${py + 10} ${x - 18} ${y + 10} ${x} ${y + 10}`, fill: "none", ...line(each) }),
      s("rect", { x, y, width: WIDE - 26, height: 20, rx: 4, fill: each === node ? "var(--light)" : "var(--paper)", ...line(each) }),
      text(4, label.length > 6 ? label.slice(0, 5).join("") + "…" : label), text(WIDE - 29, fixed(each.log_probability, 1), "end"), s("title", {}, told));
  });
  return [many ? h("p", { class: "note" }, t("beam.many", { t: ctx.sel.t })) : null, h("div", { class: "scroll" }, s("svg", { width: counts.length * WIDE, height: (Math.max(...counts) + 1) * HIGH + 6, role: "group", "aria-label": t("beam.ledger") }, drawn))];
}

/** The score line by line, beside that of the output; the first token that differs is marked. */
function ledger(beam, node, own, best) {
  const { form, alpha } = beam.penalty;
  const cells = (each) => (each ? [piece(each), fixed(each.log_probability, 4), fixed(each.total, 4)] : ["", "", ""]);
  const differs = own.findIndex((each, i) => each.id !== best[i]?.id);
  const rows = Array.from({ length: Math.max(own.length, best.length) }, (_, i) => [String(i + 1), ...cells(own[i]), ...cells(best[i])]);
  const sums = [own, best].map((nodes) => {
    const [n, total] = [nodes.length, nodes.reduce((sum, each) => sum + each.log_probability, 0)];
    const penalty = form === "google" ? ((5 + n) / 6) ** alpha : n ** alpha;
    return { penalty: `${form === "google" ? `((5 + ${n}) / 6)` : n}^${alpha} = ${fixed(penalty, 4)}`, total: `${fixed(total, 4)} / ${fixed(penalty, 4)} = ${fixed(total / penalty, 4)}`, score: total / penalty };
  });
  const wide = (name, value) => [name, ...sums.map((sum) => h("td", { colspan: 3 }, value(sum)))];
  rows.push(wide(t("lengthPenalty"), (sum) => sum.penalty), wide(t("beam.coverage"), () => t("beam.without")), wide(t("beam.score"), (sum) => sum.total));
  return [table(t("beam.ledger"), ["", t("beam.this"), "log p", "Σ", t("beam.final"), "log p", "Σ"], rows, differs), h("p", { class: "note" }, differs < 0 ? "" : t("beam.differs", { n: differs + 1 })), receipt(t("beam.score"), Math.abs(sums[0].score - node.score))];
}

/** Walks the tree: before, after, above and below. */
const walk = (find) => (ctx) => {
  const { beam, node } = chosen(ctx);
  const to = node && find(beam.nodes, node);
  if (to) setExtra({ node: to.i });
};
const beside = (way) => walk((nodes, node) => ranked(nodes.filter((each) => each.t === node.t)).find((_, i, all) => all[i - way] === node));
export const keys = { ArrowLeft: walk((nodes, node) => nodes[node.parent]), ArrowRight: walk((nodes, node) => ranked(nodes.filter((each) => each.parent === node.i))[0]), ArrowUp: beside(-1), ArrowDown: beside(1) };
