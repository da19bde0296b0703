/** Shows how each token was chosen, and which others were possible. */

import { plot, room } from "regard/axis-charts.js";
import { button, fixed, fmt, h, percent, piece, shown } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { receipt } from "regard/math-formulas.js";
import { length, softmax } from "regard/model-arithmetic.js";
import { offline } from "regard/model-data-client.js";
import { set, state } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { bars } from "regard/vector-strip.js";

/** A button that says t(key). */
export const act = (key, onclick, gaps) => button(t(key, gaps), onclick, { "data-key": key + (gaps?.n ?? "") });

/** A table that scrolls inside itself, one row marked. */
export const table = (label, heads, rows, mark) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, heads.map((each) => (each ? h("th", { scope: "col" }, each) : h("td"))))), h("tbody", {}, rows.map((row, i) => h("tr", { class: i === mark ? "marked" : "" }, row.map((cell, j) => (cell?.localName === "td" ? cell : j ? h("td", {}, cell) : h("th", { scope: "row" }, cell))))))));

/** A position as a button that follows it. */
export const place = (ctx, position) => button(String(position), () => ctx.set({ t: position }), { "data-key": `step${position}` });

export const output = (run) => run.answer.tokens.target ?? run.tokens("text");

/** The position that predicts the first token written. */
export const first = (run) => (run.tokens("target").length ? 0 : run.answer.steps.filter((step) => step.given).length - (run.answer.request.prefix?.length ?? 0));

/** The id of the end, which no output can begin with. */
export const endOf = ({ model }) => (model.specials.target ?? model.specials.text).end;

/** Lets the output begin with these tokens: in A, or beside it in B. */
export function branch(ctx, tokens, compare, more) {
  const change = { prefix: tokens.map((each) => each.id).filter((id) => id !== endOf(ctx)).join(), target: "" };
  const b = ctx.which === "b" ? JSON.parse(state.b) : compare && {};
  set({ ...(b ? { b: JSON.stringify({ ...b, ...change }), ab: "both" } : change), ...more });
}

/** Goes on with another token; a gap is filled with it. */
function instead(ctx, step, candidate, compare) {
  const { run, model } = ctx;
  if (model.task !== "fill") return branch(ctx, [...output(run).slice(first(run) + 1, step.position + 1), candidate], compare, { t: step.position });
  const { start, end } = output(run)[step.position];
  const old = run.answer.request.text;
  const text = old.slice(0, start) + candidate.text + old.slice(end);
  set(compare ? { b: JSON.stringify({ text }), ab: "both" } : { text });
}

const free = (ctx, step, candidate) => !offline && candidate.id !== step.chosen.id && candidate.id !== endOf(ctx) && (ctx.model.task === "fill" ? output(ctx.run)[step.position].start !== null : step.position >= first(ctx.run));

const share = (p) => ({ background: `linear-gradient(to right, var(--light) ${100 * p}%, transparent 0)` });

export async function render(root, ctx) {
  const { model, run, sel } = ctx;
  const { steps, request, labels } = run.answer;
  const at = Math.max(0, steps.findIndex((step) => step.position === sel.t));
  const step = steps[at];
  if (request.prefix) root.append(h("p", {}, t("dec.branched", { n: request.prefix.length }), " ", act("dec.back", () => set(ctx.which === "b" ? { b: "", ab: "a" } : { prefix: "" }))));
  if (step) root.append(figure(t(model.stacks.decoder ? "dec.step" : "dec.place", { t: step.position }), await detail(ctx, step), { python: ctx.python(run.has("logits") ? "logits" : "fill.logits", `[${step.position}]`) }), figure(t(model.stacks.decoder ? "dec.steps" : "dec.places"), stepTable(ctx, at)));
  else if (labels.length) {
    const own = labels.find((each) => each.position === sel.t) ?? labels[0];
    root.append(figure(`${t("dec.labels")} ${own.position === null ? "" : shown(output(run)[own.position])}`, bars(Object.entries(own.probabilities).map(([label, value]) => ({ label, value, text: percent(value) })), { high: 1 })));
  } else {
    const states = await ctx.tensor("encoder.states");
    root.append(figure(t("dec.norms"), bars(output(run).map((token, i) => ({ label: piece(token), value: length(states.row(i)), mark: i === sel.t }))), { note: t("dec.nothing") }));
  }
  if (model.stacks.decoder) root.append(cache(ctx));
}

function stepTable(ctx, at) {
  const { steps } = ctx.run.answer;
  const fills = ctx.model.task === "fill" ? 3 : 1;
  const rows = steps.map((step) => [
    place(ctx, step.position),
    output(ctx.run).slice(Math.max(0, step.position - 2), step.position + fills).map((token) => piece(token)),
    [piece(step.chosen), step.given ? h("span", { class: "note" }, ` ${t("dec.given")}${step.top[0].id === step.chosen.id ? "" : ` ≠ ${shown(step.top[0])}`}`) : ""],
    percent(Math.exp(step.log_probability ?? -Infinity)),
    fixed(step.entropy, 3),
    step.top.slice(0, 4).map((each) => button([piece(each), ` ${percent(each.probability)}`], () => instead(ctx, step, each), { class: "candidate", style: share(each.probability), disabled: !free(ctx, step, each) })),
  ]);
  return [table(t(ctx.model.stacks.decoder ? "dec.steps" : "dec.places"), ["t", t("dec.context"), t("dec.token"), "p", t("dec.entropy"), t(ctx.model.task === "fill" ? "dec.candidates.fill" : "dec.candidates")], rows, at), h("p", { class: "note" }, `Σ log p = ${fixed(steps.reduce((sum, step) => sum + step.log_probability, 0), 4)}`)];
}

/** One step: its best tokens with all numbers, and how one of them was taken. */
async function detail(ctx, step) {
  const { decode } = ctx.run.answer.request;
  const drawn = step.drawn === null ? null : await draw(ctx, step);
  const rows = step.top.map((each, n) => [
    piece(each), fixed(each.logit, 4), h("td", { style: share(each.probability) }, fixed(each.probability, 5)), fixed(each.log_probability, 4),
    ...(drawn ? [fixed(each.logit / decode.temperature, 4), fixed(drawn.p[each.id], 5), drawn.ends.has(each.id) ? fixed(drawn.ends.get(each.id), 5) : t("dec.cut")] : []),
    free(ctx, step, each) ? [act(ctx.model.task === "fill" ? "dec.put" : "dec.branch", () => instead(ctx, step, each), { n }), act("dec.compare", () => instead(ctx, step, each, true), { n })] : "",
  ]);
  const how = step.given ? "given" : step.drawn !== null ? "draw" : ctx.model.task === "fill" || decode.beam < 2 ? "highest" : "beam";
  return [
    table(t(ctx.model.stacks.decoder ? "dec.step" : "dec.place", { t: step.position }), [t("dec.token"), "logit", "p", "log p", ...(drawn ? [`logit / ${decode.temperature}`, "p′", "Σ p′"] : []), ""], rows, step.top.findIndex((each) => each.id === step.chosen.id)),
    h("p", {}, t("dec.rest", { n: step.top.length, mass: percent(step.rest), nats: fixed(step.entropy, 4), like: fmt(Math.exp(step.entropy)) }), " ", t(`dec.by.${how}`, { ...decode, kept: step.kept, u: fixed(step.drawn ?? 0, 6), whole: drawn ? fixed(drawn.whole, 5) : "?", token: shown(step.chosen), first: shown(step.top[0]) })),
    drawn ? receipt(t("dec.again"), drawn.token === step.chosen.id ? 0 : 1) : null,
  ];
}

/** Temperature, top-k and top-p done again on the whole row of logits, where nothing else took part and it is not too long. */
async function draw({ run, model }, step) {
  const { temperature, top_k, top_p, min_p, repetition_penalty } = run.answer.request.decode;
  if (min_p || repetition_penalty !== 1 || run.answer.tensors.logits.shape.reduce((a, b) => a * b) > 500_000) return null;
  const { end, ...never } = model.specials.target ?? model.specials.text;
  const row = (await run.tensor("logits")).row(step.position);
  const p = softmax(Float64Array.from(row, (x, id) => (id !== end && Object.values(never).includes(id) ? -Infinity : x / temperature)));
  const ends = new Map();
  let [whole, token] = [0, -1];
  [...p.keys()].sort((a, b) => p[b] - p[a]).forEach((id, rank) => {
    if (rank && (whole >= top_p || (top_k && rank >= top_k) || !p[id])) return;
    ends.set(id, (whole += p[id]));
  });
  for (const [id, sum] of ends) if (token < 0 && sum > step.drawn * whole) token = id;
  return { p, ends, whole, token };
}

/** What is remembered of the tokens so far. */
function cache(ctx) {
  const { query_groups: groups, head_width: k, head_value_width: v } = ctx.model.model;
  const [{ layers }, source, at] = [ctx.model.stacks.decoder, ctx.run.tokens("source").length, ctx.sel.t];
  const size = (n) => n * groups * (k + v);
  const points = output(ctx.run).map((_, i) => [i, size(i + 1)]);
  const picture = plot({ label: t("dec.cache"), width: room(ctx, 560), height: 130, x: { title: "t" }, y: { zero: true }, series: [{ kind: "bar", name: `t ≤ ${at}`, points: points.slice(0, at + 1), tone: "var(--k)" }, { kind: "bar", name: `t > ${at}`, points: points.slice(at + 1), tone: "var(--line)" }] });
  return figure(t("dec.cache"), [picture, h("p", {}, t("dec.sum", { t: at + 1, groups, k, v, one: size(at + 1), layers, all: size(at + 1) * layers }), source ? t("dec.cross", { source, n: size(source) }) : "")]);
}
