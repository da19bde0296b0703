/** Follows one sentence through the whole model, card by card: story, picture, numbers, code, and a check of each. */

import { button, copy, h, shown, tick } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { maxDelta } from "regard/model-arithmetic.js";
import { computer, foreign, get } from "regard/model-data-client.js";
import { extra, set, setExtra, state } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { strips } from "regard/vector-strip.js";
import { ATTENTION } from "regard/views/journey-attention-cards.js";
import { place, share } from "regard/views/journey-card-parts.js";
import { STREAM } from "regard/views/journey-layer-cards.js";

const CARDS = { ...STREAM, ...ATTENTION };
const lists = new WeakMap();

/** The cards for this model, in its own order. */
function cardsOf(model) {
  if (lists.has(model)) return lists.get(model);
  const two = "target" in model.embeddings;
  const [first] = Object.keys(model.stacks);
  const attention = Object.keys(ATTENTION);
  const steps = model.model.norm === "pre" ? ["norm", ...attention, "add"] : [...attention, "add", "norm"];
  const at = (section, stack, names, kind = "self_attention") => names.map((key) => ({ key, section, stack, kind }));
  const group = (key, kind, names, start) => ({ ...at("decoder", "decoder", [key], kind)[0], cards: at("decoder", "decoder", names, kind), start });
  const end = first === "decoder" || two ? ["logits", "probabilities", "choose", "stop"] : {
    fill: ["logits", "probabilities"],
    classify: ["label"],
    embed: ["vector"],
  }[model.task];
  const list = [
    ...at("input", first, ["text", "embed", "position"]),
    ...at(first, first, ["into", ...steps, "ffn", "end", ...(first === "encoder" ? [two ? "memory" : "states"] : [])]),
    ...(two ? [
      ...at("decoder", "decoder", ["shift"]),
      group("masked", "self_attention", steps, "mask"),
      group("cross", "cross_attention", steps, "qkv"),
      group("forward", "cross_attention", ["ffn", "end"], "ffn"),
    ] : []),
    ...at("output", two ? "decoder" : first, [...end, "recap"], two ? "cross_attention" : undefined),
  ];
  const find = (key) => list.findIndex((card) => card.key === key);
  for (const card of [
    ...list,
    ...list.flatMap((each) => each.cards ?? []),
  ]) card.again = find(card.key === "choose" ? (two ? "shift" : "embed") : two && card.stack === "decoder" ? "masked" : "into");
  lists.set(model, list);
  return list;
}

/** The place of the first card of this kind. */
export const cardIndex = (model, key) => Math.max(0, cardsOf(model).findIndex((card) => card.key === key));

/** What was shown last: when another place is then picked on the map, its card is wanted. */
let last = null;

/** The card to show, and whether the rest of the page shows the same place. */
function current({ model, sel }) {
  const list = cardsOf(model);
  const fits = (card) => card.stack === sel.stack && card.kind === sel.kind;
  let index = Math.max(0, Math.min(list.length - 1, sel.card));
  if (last?.card === index && !fits(list[index]) && (last.stack !== sel.stack || last.kind !== sel.kind)) {
    const other = list.findIndex((card) => fits(card) && card.section === sel.stack);
    if (other >= 0) index = other;
  }
  return { list, index, card: list[index], fits: fits(list[index]) && sel.card === index };
}

/** Goes to a card, and the map with it. */
function go(list, index) {
  const { stack, kind } = list[Math.max(0, Math.min(list.length - 1, index))];
  const x = new URLSearchParams(state.x);
  x.delete("step");
  set({ card: Math.max(0, Math.min(list.length - 1, index)), stack, kind, x: x.toString() });
}
const turn = (ctx, by) => {
  const { list, index } = current(ctx);
  go(list, index + by);
};
const stepOf = (card) => Math.max(0, card.cards.findIndex((each) => each.key === extra("step", card.start)));

let timer = null;
/** Goes on by itself until it is stopped or has arrived. */
function play(ctx) {
  const stop = () => {
    clearInterval(timer);
    timer = null;
    setExtra({ play: 0 });
  };
  if (timer) return stop();
  timer = setInterval(() => {
    const list = cardsOf(ctx.model);
    const card = list[state.card];
    if (state.view !== "journey" || state.card >= list.length - 1) return stop();
    if (card.cards && stepOf(card) + 1 < card.cards.length) setExtra({ step: card.cards[stepOf(card) + 1].key });
    else go(list, state.card + 1);
  }, 2500);
  setExtra({ play: 1 });
}

export const keys = { ArrowLeft: (ctx) => turn(ctx, -1), ArrowRight: (ctx) => turn(ctx, 1), " ": play };
for (const depth of [1, 2, 3, 4]) keys[depth] = () => set({ depth });

/** Numbered titles of all cards, by part of the model. */
function outline(list, index) {
  const entry = (card, n) => h(
    "li",
    {},
    button(
      [h("span", { class: "n" }, String(n + 1)), " ", h("span", { class: "title" }, t(`j.${card.key}`))],
      () => go(list, n),
      { "aria-current": n === index ? "step" : null, "aria-label": `${n + 1} ${t(`j.${card.key}`)}`, "data-key": `j-card-${n}`, title: t(`j.${card.key}`) },
    ),
  );
  return h(
    "nav",
    { class: "outline", "aria-label": t("j.cards") },
    [...new Set(list.map((card) => card.section))].map((section) => h(
      "div",
      {},
      h("h4", {}, t(`j.in.${section}`)),
      h("ol", {}, list.map((card, n) => card.section === section && entry(card, n))),
    )),
  );
}

/** Back, next, play and the depth. */
function controls(ctx, list, index) {
  const depths = ["story", "picture", "numbers", "code"].map((name, n) => button(
    [h("span", { class: "n" }, String(n + 1)), t(`j.${name}`)],
    () => set({ depth: n + 1 }),
    { "aria-pressed": ctx.sel.depth === n + 1, "data-key": `j-depth-${n + 1}` },
  ));
  const label = t(timer ? "j.pause" : "j.play");
  return h(
    "div",
    { class: "controls" },
    button("←", () => turn(ctx, -1), { disabled: !index, "aria-label": t("j.back"), "data-key": "j-prev" }),
    button([t("j.forth"), " →"], () => turn(ctx, 1), { class: "run", disabled: index === list.length - 1, "data-key": "j-next" }),
    button(timer ? "❚❚" : "▶", () => play(ctx), { "aria-pressed": Boolean(timer), "aria-label": label, title: label, "data-key": "j-play" }),
    h("span", { class: "depths", role: "group", "aria-label": t("j.depth") }, depths),
  );
}

/** What the page computed against what PyTorch computed. */
function receipt(p, checks) {
  if (!checks?.length) return null;
  const { patch } = p.run.answer.request;
  if (foreign(p.run) || p.missing) return h("p", { class: "note" }, t("j.noWeights"));
  const delta = Math.max(...checks.map(([, ours, theirs]) => maxDelta(ours, theirs)));
  const size = Math.max(1, ...checks.flatMap(([, , theirs]) => Array.from(theirs, Math.abs).filter(Number.isFinite)));
  const good = delta <= 1e-4 * size;
  const changed = !good && patch?.length;
  const verdict = changed ? t("j.byHand") : `max |Δ| vs ${computer()} = ${delta && delta.toExponential(1).replace("-", "−")} ${good ? "✓" : "✗"}`;
  return h(
    "p",
    { class: `receipt ${good ? "good" : changed ? "" : "bad"}`, "data-receipt": p.card.key, "data-delta": delta },
    verdict,
    h("span", { class: "note" }, ` ${t("j.recomputed", { what: checks.map(([name]) => name).join(", ") })}`),
  );
}

/** The toolkit's own line that made the tensor, and how to get it in Python. */
async function code(name, python) {
  const found = await get(`api/source?name=${name}`).catch(() => null);
  const lines = found?.snippet.split("\n").map((line, n) => [n + found.start === found.line ? h("mark", {}, line) : line, "\n"]);
  const button1 = button(t("copyPython"), () => copy(python, button1));
  return [
    found ? [h("p", { class: "note" }, `${found.file}:${found.line}`), h("pre", { tabindex: 0 }, lines)] : h("p", { class: "note" }, t("offlineMissing")),
    h("pre", { tabindex: 0 }, python),
    button1,
  ];
}

/** A question that the numbers of the card answer. */
function quiz([name, choices, right, gaps]) {
  const verdict = h("p", { role: "status" });
  const answer = (n) => verdict.replaceChildren(
    h("b", {}, n === right ? `✓ ${t("j.right")} ` : `✗ ${t("j.wrong", { answer: choices[right] })} `),
    t(`j.why.${name}`, gaps),
  );
  return h(
    "details",
    { class: "quiz" },
    h("summary", {}, t("j.question")),
    h("p", {}, t(`j.ask.${name}`, gaps)),
    h("p", {}, choices.map((label, n) => [button(label, () => answer(n)), " "])),
    verdict,
  );
}

/** What the decoder would say if it stopped after each part of this layer. */
async function lens(p) {
  const points = p.run.answer.points?.[p.stack] ?? [];
  if (p.stack !== "decoder" || !p.run.has("decoder.lens.ids")) return null;
  const [ids, chances, rank] = await p.get("decoder.lens.ids", "decoder.lens.probabilities", "decoder.lens.rank");
  const here = p.card.key === "ffn" || p.card.key === "end" ? "feed_forward" : p.cross ? "cross" : "self";
  const from = points.findIndex((point) => point.startsWith(`layers.${p.number}.`)) - 1;
  const count = p.model.stacks.decoder.kinds.length + 2;
  const first = Array.from({ length: count }, (_, n) => ids.at(from + n, p.i, 0));
  const names = new Map(p.run.answer.steps.flatMap((step) => [...step.top, step.chosen]).map((each) => [each.id, shown(each)]));
  const missing = first.filter((id) => !names.has(id));
  const found = missing.length ? await get(`api/embeddings/map?side=${p.text}&n=1&ids=${missing}`).catch(() => null) : null;
  found?.ids.forEach((id, n) => names.set(id, shown({ display: found.displays[n] })));
  const say = (n) => h(
    "span",
    { class: `say ${points[n] === `layers.${p.number}.${here}` ? "gold" : ""}` },
    h("small", {}, t(n === from ? "j.before" : `kind.${points[n].split(".")[2]}${points[n].endsWith("forward") ? "" : "_attention"}`)),
    h("b", {}, names.get(first[n - from]) ?? `#${first[n - from]}`),
    h("small", {}, share(chances.at(n, p.i, 0)), rank.at(n, p.i) ? ` · ${t("j.rank", { n: rank.at(n, p.i) + 1 })}` : ""),
  );
  return h("div", { class: "lens" }, h("span", { class: "note" }, t("j.lens")), Array.from({ length: count }, (_, n) => say(from + n)));
}

/** The words of a card, in the variant for this model. */
function story(p, { variant, gaps } = {}) {
  const { m } = p;
  return h(
    "p",
    { class: "story" },
    t(
      `j.${p.card.key}${variant ? `.${variant}` : ""}.story`,
      {
        token: p.name,
        i: p.i,
        layer: p.number,
        layers: p.layers,
        head: p.head,
        heads: m.heads,
        width: m.width,
        k: m.head_width,
        root: +Math.sqrt(m.head_width).toFixed(3),
        hidden: m.hidden,
        n: p.tokens.length,
        keys: p.keys.length,
        scale: +p.model.scale.toFixed(3),
        activation: m.activation,
        ...gaps,
      },
    ),
  );
}

/** One card down to the depth that is wanted. */
async function body(p, depth) {
  const cards = p.card.section === "output" ? (await import("regard/views/journey-output-cards.js")).OUTPUT : CARDS;
  const made = await cards[p.card.key](p);
  const [first, ...index] = made.of ?? [];
  const name = first?.[0] === "." ? p.site + first : first;
  const python = name && p.ctx.python(name, index.length ? `[${index.join(", ")}]` : "");
  const all = made.rows?.some((row) => row.vector.length > 16) && tick(t("j.all"), p.all, (on) => setExtra({ all: on ? 1 : 0 }));
  const picture = [
    made.body,
    made.rows?.length ? strips(made.rows, { all: p.all && made.rows[0].vector.length <= 512 }) : null,
    all,
    made.after,
  ].flat(4).filter(Boolean);
  return [
    story(p, made),
    depth > 1 && [figure(t(`j.${p.card.key}`), picture, { python, name: `regard-${p.card.key}` }), receipt(p, made.check)],
    depth > 2 && made.numbers?.length ? h("section", { class: "more" }, h("h3", {}, t("j.numbers")), made.numbers) : null,
    depth > 3 && name ? h("section", { class: "more" }, h("h3", {}, t("j.code")), await code(name, python)) : null,
    depth > 1 && made.ask ? quiz(made.ask) : null,
  ];
}

export async function render(root, ctx) {
  const { list, index, card, fits } = current(ctx);
  const fresh = last?.card !== index;
  last = { card: index, stack: card.stack, kind: card.kind };
  if (!fits) set(last); // the map and the playhead follow
  const inner = card.cards ? card.cards[stepOf(card)] : card;
  const p = place(ctx, inner);
  const inside = card.section in ctx.model.stacks;
  const where = inside ? `${t(`stack.${p.stack}`)} · ${t("layer")} ${p.number} · ${t("head")} ${p.head} ` : "";
  const steps = card.cards && h(
    "div",
    { class: "steps", role: "group", "aria-label": t(`j.${card.key}`) },
    card.cards.map((each) => button(
      t(`j.${each.key}`),
      () => setExtra({ step: each.key }),
      { "aria-pressed": each === inner, "data-key": `j-step-${each.key}` },
    )),
  );
  const strip = inside && (card.cards || card.key === "ffn") ? await lens(p) : null;
  const article = h(
    "article",
    { class: `card ${fresh ? "fresh" : ""}`, "data-card": card.key },
    controls(ctx, list, index),
    h("h2", {}, h("span", { class: "n" }, String(index + 1)), " ", t(`j.${card.key}`)),
    h("p", { class: "where" }, where, h("span", { class: "follow" }, p.name)),
    foreign(p.run) ? h("p", { class: "warning" }, t("finalWeights")) : null,
    card.cards ? [story({ ...p, card }), steps] : null,
    strip,
    await body(p, ctx.sel.depth),
  );
  root.append(h("div", { class: "journey" }, outline(list, index), article));
  if (fresh) setTimeout(() => article.getBoundingClientRect().top < 0 && article.scrollIntoView()); // a new card begins at its top
}
