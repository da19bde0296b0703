/** Compares a second run, in which something was changed, with the first. */

import { pick } from "regard/axis-charts.js";
import { scaleOf } from "regard/color-scales.js";
import { button, choice, fixed, fmt, h, percent, piece, shown, tick } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { receipt } from "regard/math-formulas.js";
import { matrix } from "regard/matrix-heatmap.js";
import { maxDelta } from "regard/model-arithmetic.js";
import { ablate, offline, run as askRun } from "regard/model-data-client.js";
import { extra, request, set, setExtra, state } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { bars } from "regard/vector-strip.js";
import { answerAt } from "regard/views/attention-head-facts.js";
import { act, endOf, first, output, place, table } from "regard/views/decoding-steps.js";

/** Whether two patches take each other's place: a head is zero, mean or uniform. */
const plain = (patch) => JSON.stringify(patch).replace(/zero|mean|uniform/, "");
const same = (a) => (b) => plain(a) === plain(b);
const differences = () => JSON.parse(state.b || "{}");
const own = () => JSON.parse(state.patch || "[]");
/** The patches of B: its own, or those of A. */
const patches = () => JSON.parse(differences().patch ?? (state.patch || "[]"));

/** Gives B these differences; null takes one back. */
function change(changes, more) {
  if (offline) return;
  const all = Object.entries({ ...differences(), ...changes }).filter((each) => each[1] !== null);
  set({ b: all.length ? JSON.stringify(Object.fromEntries(all)) : "", ...(all.length ? {} : { ab: "a" }), ...more });
}
const patch = (list, more) => change({ patch: JSON.stringify(list) === JSON.stringify(own()) ? null : JSON.stringify(list) }, more);
const without = (list) => patches().filter((each) => !list.some(same(each)));
const add = (...list) => patch([...without(list), ...list]);

/** Patches that switch positions off, as far as the model has any. */
function noPositions({ model, stacks, embeddings }) {
  const sites = { rotary: Object.keys(stacks).map((name) => `${name}.rotary`), none: [] }[model.positions] ?? Object.values(embeddings).map((name) => `${name}.positions`);
  return sites.map((site) => ({ site, op: "zero" }));
}

const stepIndex = ({ a: { answer }, sel }) => Math.max(0, (answer.steps.length ? answer.steps : answer.labels).findIndex((each) => each.position === sel.t));
/** What A answers at the followed step. */
const choiceOf = (ctx) => {
  const { name, where } = answerAt(ctx.a, stepIndex(ctx));
  return name + where;
};

export async function render(root, ctx) {
  root.replaceChildren(); // A and B are shown together here
  root.hidden = ctx.which === "b" && state.ab === "both";
  if (root.hidden) return;
  root.style.gridColumn = "1 / -1";
  const map = extra("map");
  const found = map ? await ablate(ctx.a, ...map.split(" ")).catch((error) => ({ error })) : {};
  root.append(offline ? h("p", {}, t("offlineMissing")) : list(ctx), h("div", { class: "sets", inert: offline }, ofText(ctx), ofHead(ctx, found), ofModel(ctx)));
  if (ctx.b) root.append(...outputs(ctx), steps(ctx));
  root.append(ctx.model.task === "embed" ? "" : ablation(ctx, map, found), offline ? "" : await positions(ctx));
}

/** A patch in words; places with their tokens. */
function told({ model, b, a }, patch) {
  const { text } = model.stacks[patch.site.split(".")[0]] ?? { text: patch.site };
  const token = (key, place) => (b ?? a).tokens(key === "key" && patch.site.includes("cross_") ? "source" : text)[place];
  const name = (key, place) => (key === "head" || !token(key, place) ? "" : ` ${shown(token(key, place))}`);
  return Object.entries(patch).map(([key, value]) => (typeof value === "number" ? `${key} ${value}${name(key, value)}` : value)).join(" · ");
}

/** What is different in B, each thing removable. */
function list(ctx) {
  const { patch: _, ...rest } = differences();
  const item = (text, drop) => h("li", {}, text, " ", button("×", drop, { "aria-label": `${t("if.remove")} ${text}`, "data-key": text }));
  const items = [...Object.entries(rest).map(([key, value]) => item(`${key}: ${value}`, () => change({ [key]: null }))), ...patches().map((each) => item(told(ctx, each), () => patch(without([each]))))];
  return h("div", {}, h("b", {}, t("if.changes")), items.length ? h("ul", {}, items) : t("if.none"), ctx.b ? h("p", { class: "ways" }, act("if.both", () => set({ ab: "both", view: "atlas" })), act("if.diff", () => set({ ab: "diff", view: "atlas" })), act("dropB", () => set({ b: "", ab: "a" }))) : null);
}

const where = (stack, kind, ...rest) => [t(`stack.${stack}`), t(`kind.${kind}`), ...rest].join(" · ");
const group = (key, ...children) => h("fieldset", {}, h("legend", {}, t(key)), children);
const names = (tokens) => tokens.map((token, i) => [i, `${i} ${shown(token)}`]);

/** An order in which the words are shuffled and special tokens stay. */
function shuffled(tokens) {
  const luck = tokens.map(Math.random);
  const places = [...tokens.keys()].filter((i) => !tokens[i].special);
  const moved = [...places].sort((a, b) => luck[tokens[a].word] - luck[tokens[b].word] || a - b);
  return tokens.map((token, i) => (token.special ? i : moved[places.indexOf(i)])).join();
}

/** Changes of what is read. */
function ofText(ctx) {
  const { model, a, sel } = ctx;
  const text = model.embeddings.source ? "source" : "text";
  const tokens = model.task === "write" ? a.tokens(text).slice(0, first(a) + 1) : a.tokens(text);
  const field = h("input", { value: differences().text ?? state.text, dir: "auto", "data-key": "if-text", "aria-label": t("if.text") });
  const [i, j] = [Number(extra("i", text === "source" ? sel.q : Math.min(sel.t, tokens.length - 1))), Number(extra("j", 1))];
  const off = noPositions(model);
  return group("if.input",
    h("form", { onsubmit: (event) => (event.preventDefault(), change({ text: field.value === state.text ? null : field.value, order: null })) }, field, h("button", {}, t("if.run"))),
    h("div", {}, pick("i", t("dec.token"), names(tokens), i), act("if.hide", () => add({ site: text, op: "hide", position: i }))),
    h("div", {}, pick("j", t("if.with"), names(tokens), j), act("if.swap", () => change({ order: tokens.map((_, n) => (n === i ? j : n === j ? i : n)).join() })), act("if.shuffle", () => change({ order: shuffled(tokens) }))),
    off.length ? tick(t("if.off"), off.every((each) => patches().some(same(each))), (on) => (on ? add(...off) : patch(without(off)))) : null);
}

/** Changes of the selected head, and what it does. */
function ofHead(ctx, found) {
  const { sel, attention: site, position: query, stack } = ctx;
  const [head, key] = [sel.head, Math.max(0, sel.k)];
  const effect = found.heads?.[`${sel.stack}.${sel.kind}`]?.[sel.layer][head][stepIndex(ctx)];
  return group("if.head", h("p", { class: "note" }, where(sel.stack, sel.kind, `${t("layer")} ${sel.layer}`, `${t("head")} ${head}`)),
    h("div", {}, ["zero", "mean", "uniform"].map((op) => act(`if.${op}`, () => add({ site, head, op })))),
    h("div", {}, choice(t("if.row"), names(ctx.a.tokens(stack.text)), query, (value) => ctx.follow(stack.text, Number(value))), choice(t("if.onto"), names(ctx.a.tokens(ctx.keys)), key, (value) => set({ k: Number(value) })), act("if.force", () => add({ site, head, op: "force", query, key }))),
    ctx.model.task === "embed" ? null : h("p", { class: "note" }, effect === undefined ? t("if.unmeasured") : t("if.effect", { op: t(`if.${extra("map").split(" ")[1]}`), delta: fixed(effect, 4), token: choiceOf(ctx) })));
}

/** A sublayer left out, or another checkpoint. */
function ofModel(ctx) {
  const saved = ctx.model.checkpoints ?? [];
  return group("if.model", h("div", {}, [ctx.sel.kind, "feed_forward"].map((part) => act("if.drop", () => add({ site: `${ctx.layer}.${part}`, op: "drop" }), { n: where(ctx.sel.stack, part, ctx.sel.layer) }))),
    saved.length ? choice(t("if.checkpoint"), [["", "–"], ...saved.map((each) => [each.id, each.id])], differences().checkpoint ?? "", (id) => change({ checkpoint: id || null })) : null);
}

/** The places of a longest common subsequence. */
function common(a, b) {
  const best = Array.from({ length: a.length + 1 }, () => Array(b.length + 1).fill([]));
  for (let i = a.length; i--; )
    for (let j = b.length; j--; ) {
      const [x, y] = [best[i + 1][j], best[i][j + 1]];
      best[i][j] = a[i].id === b[j].id ? [[i, j], ...best[i + 1][j + 1]] : x.length > y.length ? x : y;
    }
  return best[0][0];
}

const written = (run) => run.answer.steps.filter((step) => !run.has("logits") || step.position >= first(run));

/** Both outputs, what only one of them has marked. */
function outputs({ a, b }) {
  const sides = [a, b].map((run) => (run.answer.labels.length ? run.answer.labels.map((each) => ({ id: -1, display: Object.entries(each.probabilities).map(([label, p]) => `${label} ${percent(p)}`).join(" ") })) : written(run).map((step) => step.chosen)));
  const kept = common(...sides);
  return sides.map((tokens, side) => h("p", { class: "text" }, h("b", {}, side ? "B " : "A "), tokens.map((token, i) => (kept.some((pair) => pair[side] === i) ? piece(token) : h(side ? "ins" : "del", {}, piece(token))))));
}

/** By how much A's tokens become more probable, as far as both have written the same. */
function steps(ctx) {
  const [ours, theirs] = [written(ctx.a), written(ctx.b)];
  const fills = ctx.model.task === "fill";
  const all = ours.map((step) => step.chosen.id).filter((id) => id !== endOf(ctx)).join();
  let [equal, sum] = [true, 0];
  const rows = ours.map((step, i) => {
    const other = equal ? theirs[i] : null;
    const p = (other?.chosen.id === step.chosen.id ? other : other?.top.find((each) => each.id === step.chosen.id))?.log_probability;
    equal &&= fills || other?.chosen.id === step.chosen.id;
    sum += (p ?? NaN) - step.log_probability;
    return [place(ctx, step.position), piece(step.chosen), fixed(step.log_probability, 4), ...(p === undefined ? ["–", "–"] : [fixed(p, 4), fixed(p - step.log_probability, 4)]), other ? [piece(other.top[0]), ` ${percent(other.top[0].probability)}`] : "–"];
  });
  return ours.length ? figure(t("if.steps"), [fills ? null : tick(t("if.forced"), differences().prefix === all, (on) => change(on ? { prefix: all, target: "", max_tokens: ours.length } : { prefix: null, target: null, max_tokens: null })), table(t("if.steps"), ["t", "A", "log p A", "log p B", "B − A", t("if.first")], rows, stepIndex(ctx) - ctx.a.answer.steps.indexOf(ours[0])), Number.isNaN(sum) ? null : h("p", {}, `Σ (B − A) = ${fixed(sum, 4)}`)], { note: t(fills ? "if.note.fill" : "if.note") }) : "";
}

/** The effect of leaving out each head or sublayer at the followed step. */
function ablation(ctx, map, found) {
  const at = stepIndex(ctx);
  const now = (display) => (display ? `→ ${shown({ display })}` : "");
  const buttons = ["heads", "sublayers"].flatMap((what) => ["zero", "mean"].map((op) => button(`${t(`if.${what}`)}: ${t(`if.${op}`)}`, () => setExtra({ map: `${what} ${op}` }), { "aria-pressed": map === `${what} ${op}`, "data-key": what + op })));
  const maps = (found.kinds ?? []).map((name) => {
    const [stack, kind] = name.split(".");
    const [cells, tops] = [found.heads[name], found.top[name]];
    const numbers = (list) => list.map((_, i) => String(i));
    return h("div", {}, h("div", { class: "note" }, where(stack, kind)), matrix({
      rows: cells.length, columns: cells[0].length, at: (i, j) => cells[i][j][at], label: name, rowLabels: numbers(cells), columnLabels: numbers(cells[0]), rowTitle: t("layer"), columnTitle: t("head"), cell: Math.max(20, Math.min(46, 640 / cells[0].length)),
      scale: scaleOf(found.kinds.flatMap((each) => found.heads[each].flat().map((row) => row[at])), true), framed: (i, j) => stack === ctx.sel.stack && kind === ctx.sel.kind && i === ctx.sel.layer && j === ctx.sel.head,
      tell: (i, j) => now(tops[i][j][at]), onpick: (layer, head) => patch([...own(), { site: `${stack}.layers.${layer}.${kind}`, head, op: map.split(" ")[1] }], { stack, kind, layer, head }),
    }));
  });
  const lines = Object.values(found.sublayers ?? {}).flat();
  return figure(t("if.map", { token: choiceOf(ctx) }), [h("div", { class: "ways" }, buttons), found.error ? h("p", { class: "error" }, found.error.offline ? t("offlineMissing") : found.error.message) : null, h("div", { class: "trends" }, maps), lines.length ? bars(lines.map(({ site, delta, top }) => ({ label: site.replace("layers.", "").replace("_attention", "").replace("feed_forward", "FF"), value: delta[at], note: now(top[at]), onpick: () => patch([...own(), { site, op: "drop" }]) }))) : null], { note: t("if.mapNote") });
}

/** Words in another order, with and without positions: do the states only change places? */
async function positions(ctx) {
  const [name, { text }] = Object.entries(ctx.model.stacks)[0];
  const tokens = ctx.a.tokens(text).slice(0, ctx.model.task === "write" ? first(ctx.a) + 1 : undefined);
  const order = extra("order").split(",").map(Number);
  const start = act("if.try", () => setExtra({ order: shuffled(tokens) }));
  const how = { note: t(name === "decoder" ? "if.causal" : "if.bag"), python: ctx.python(`${name}.states`) };
  if (order.length !== tokens.length) return figure(t("if.order"), start, how);
  const far = await Promise.all([own(), [...own(), ...noPositions(ctx.model)]].map(async (list) => {
    const asked = ["", order.join()].map(async (each) => (await askRun(request(state, JSON.stringify({ patch: JSON.stringify(list), order: each, prefix: "", target: "", beam: 1, max_tokens: 1 })))).tensor(`${name}.states`));
    const [plain, moved] = await Promise.all(asked);
    return Math.max(...order.map((from, to) => maxDelta(plain.row(from), moved.row(to))));
  }));
  return figure(t("if.order"), [start, h("p", { class: "text" }, order.map((i) => piece(tokens[i]))), ctx.model.model.positions === "none" ? null : h("p", {}, `${t("if.on")}: |Δ| = ${fmt(far[0])}`), name === "decoder" ? h("p", {}, `${t("if.undone")}: |Δ| = ${fmt(far[1])}`) : receipt(t("if.undone"), far[1], 1e-3)], how);
}
