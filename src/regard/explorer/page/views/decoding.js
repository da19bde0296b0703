/** How each token was chosen: candidates, their arithmetic, and what else could have been written. */

import { button, fixed, fmt, h, percent, piece, s, shown } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { length, maxDelta, softmax } from "regard/maths.js";
import { set, state } from "regard/state.js";
import { t } from "regard/strings.js";
import { bars } from "regard/strip.js";

/** How many tokens stood there before the model wrote anything. */
export function promptLength(run) {
  if (run.tokens("target").length) return 1;
  return run.answer.steps.filter((step) => step.given).length + 1 - (run.answer.request.prefix?.length ?? 0);
}

/** The ids written so far at a position, without the prompt. */
export const writtenIds = (run, position) => (run.answer.tokens.target ?? run.tokens("text")).slice(promptLength(run), position + 1).map((token) => token.id);

/** Lets an output begin with these ids: in A, or beside it in B. */
export function branch(ctx, ids, compare, changes = {}) {
  const fixed = { prefix: ids.join(","), target: "" };
  if (!compare && ctx.which !== "b") return set({ ...fixed, ...changes });
  set({ b: JSON.stringify({ ...(ctx.which === "b" ? JSON.parse(state.b) : {}), ...fixed }), ab: "both", ...changes });
}

/** A line of proof: what was computed here against what PyTorch gave. */
export const receipt = (text, delta, most = 1e-4) => h("p", { class: `receipt ${delta <= most ? "good" : "bad"}`, "data-delta": delta }, `${text}: max |Δ| = ${fmt(delta, 2)} ${delta <= most ? "✓" : "✗"}`);

/** Text from our own tables with pieces in its gaps: say("a {x} b", {x: element}). */
export const say = (key, gaps) => t(key).split(/\{(\w+)\}/).map((part, i) => (i % 2 ? gaps[part] ?? "" : part));

/** A table that scrolls inside itself. */
export const scrolled = (label, heads, rows) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, heads.map((each) => h("th", { scope: "col" }, each)))), h("tbody", {}, rows)));

export async function render(root, ctx) {
  const { model, run, sel } = ctx;
  if (model.task === "classify") return root.append(labels(ctx));
  if (model.task === "embed") return root.append(await norms(ctx));
  const { steps, request } = run.answer;
  if (ctx.which === "diff") root.append(h("p", { class: "note" }, t("dec.diff")));
  if (request.prefix) root.append(h("p", {}, t("dec.branched", { n: request.prefix.length }), " ", button(t("dec.back"), () => (ctx.which === "b" ? set({ b: "", ab: "a" }) : set({ prefix: "" })), { "data-key": "unbranch" })));
  if (request.target !== null && model.task === "translate") root.append(h("p", { class: "note" }, t("dec.forced")));
  const here = steps.find((step) => step.position === sel.t) ?? steps[0];
  if (!here) return root.append(h("p", {}, t("dec.nothing")));
  root.append(figure(t("dec.detail", { t: here.position }), await detail(ctx, here), { python: ctx.python(run.has("logits") ? "logits" : "fill.logits", `[${here.position}]`), name: "step" }));
  root.append(figure(t("dec.steps"), stepTable(ctx, here), { name: "steps" }));
  if (model.stacks.decoder) root.append(figure(t("dec.cache"), cache(ctx, here.position), { name: "cache" }));
}

/** Goes on with another token than the chosen one; a gap is filled with it. */
function another(ctx, step, candidate, compare) {
  const { run, model } = ctx;
  if (model.task !== "fill") return branch(ctx, [...writtenIds(run, step.position), candidate.id], compare, { t: step.position });
  const { start, end } = run.tokens("text")[step.position];
  const text = run.answer.request.text.slice(0, start) + candidate.text + run.answer.request.text.slice(end);
  set(compare ? { b: JSON.stringify({ text }), ab: "both" } : { text });
}

/** Whether another token could stand there. */
const free = (ctx, step) => (ctx.model.task === "fill" ? ctx.run.tokens("text")[step.position]?.start !== null : step.position >= promptLength(ctx.run) - 1);

function stepTable(ctx, here) {
  const { run, model } = ctx;
  const text = run.answer.tokens.target ?? run.tokens("text");
  const fills = model.task === "fill";
  const rows = run.answer.steps.map((step) => {
    const context = fills ? text.slice(Math.max(0, step.position - 2), step.position + 3) : text.slice(Math.max(0, step.position - 3), step.position + 1);
    const candidates = step.top.slice(0, 4).map((each) => {
      const style = { background: `linear-gradient(to right, var(--light) ${100 * each.probability}%, transparent 0)` };
      return button([piece(each), ` ${percent(each.probability)}`], () => another(ctx, step, each), { class: `candidate ${each.id === step.chosen.id ? "chosen" : ""}`, style, disabled: each.id === step.chosen.id || !free(ctx, step), title: t("dec.branch") });
    });
    const preferred = step.given && step.top[0].id !== step.chosen.id ? h("span", { class: "note" }, " ", t("dec.given"), " ← ", shown(step.top[0])) : step.given ? h("span", { class: "note" }, " ", t("dec.given")) : null;
    return h("tr", { class: step === here ? "followed" : "", "aria-current": step === here ? "step" : null },
      h("th", { scope: "row" }, button(String(step.position), () => ctx.set({ t: step.position }), { "data-key": `step-${step.position}`, "aria-label": t("dec.detail", { t: step.position }) })),
      h("td", { class: "left" }, step.position > 3 ? "… " : "", context.map((token) => piece(token))), h("td", { class: "left" }, h("b", {}, piece(step.chosen)), preferred),
      h("td", {}, percent(Math.exp(step.log_probability))), h("td", {}, fixed(step.entropy, 3)), h("td", { class: "left" }, candidates));
  });
  const total = run.answer.steps.reduce((sum, step) => sum + step.log_probability, 0);
  return [scrolled(t("dec.steps"), ["t", t(fills ? "dec.around" : "dec.context"), t("dec.chosen"), "p", t("dec.entropy"), t("dec.candidates")], rows), h("p", { class: "note" }, `Σ log p = ${fixed(total, 4)}`)];
}

/** One step: its best tokens with all numbers, and how one of them was taken. */
async function detail(ctx, step) {
  const { run } = ctx;
  const { temperature: heat, top_k, top_p, seed, beam } = run.answer.request.decode;
  const samples = heat > 0 && !step.given && ctx.model.task !== "fill";
  const drawn = samples ? await drawing(ctx, step) : null;
  const head = ["", t("dec.token"), "logit", "p", "log p", ...(drawn ? [`logit / ${heat}`, "p′", t("dec.interval")] : []), t("dec.goOn")];
  const rows = step.top.map((each, rank) => {
    const odds = drawn?.rows[rank];
    const own = each.id === step.chosen.id;
    return h("tr", { class: own ? "followed" : "" }, h("td", {}, String(rank + 1)), h("td", { class: "left" }, piece(each), own ? " ●" : ""), h("td", {}, fixed(each.logit, 4)),
      h("td", { style: { background: `linear-gradient(to right, var(--light) ${100 * each.probability}%, transparent 0)` } }, fixed(each.probability, 5)), h("td", {}, fixed(each.log_probability, 4)),
      odds ? [h("td", {}, fixed(each.logit / heat, 4)), h("td", {}, odds.p === null ? "–" : fixed(odds.p, 5)), h("td", {}, odds.end === null ? t("dec.cut") : `${fixed(odds.start, 4)} … ${fixed(odds.end, 4)}`)] : null,
      h("td", { class: "left" }, own || !free(ctx, step) ? "" : [button(t("dec.branch"), () => another(ctx, step, each), { "data-key": `go-${rank}` }), " ", button(t("dec.compare"), () => another(ctx, step, each, true), { "data-key": `compare-${rank}` })]));
  });
  const how = step.given ? "dec.byGiven" : ctx.model.task === "fill" ? "dec.byFill" : samples ? "dec.bySample" : beam > 1 ? "dec.byBeam" : "dec.byGreedy";
  const gaps = { heat, k: top_k || "–", p: top_p, kept: step.kept ?? "?", u: step.drawn === null ? "?" : fixed(step.drawn, 6), seed, token: shown(step.chosen), first: shown(step.top[0]) };
  return [scrolled(t("dec.detail", { t: step.position }), head, rows), h("p", {}, t("dec.rest", { n: step.top.length, mass: percent(step.rest) }), " ", t("dec.entropyIs", { h: fixed(step.entropy, 4), n: fmt(Math.exp(step.entropy), 3) })), h("p", {}, t(how, gaps)), drawn?.proof];
}

/** Temperature, top-k and top-p done again on the whole row of logits; beyond a million numbers the row is not fetched. */
async function drawing(ctx, step) {
  const { run, model } = ctx;
  const decode = run.answer.request.decode;
  const size = run.answer.tensors.logits.shape.reduce((a, b) => a * b);
  if (size > 500_000 || (decode.repetition_penalty ?? 1) !== 1) return { rows: step.top.map(() => ({ p: null, start: 0, end: null })), proof: h("p", { class: "note" }, t("dec.bigRow")) };
  const row = (await run.tensor("logits")).row(step.position);
  const { end, ...never } = model.specials.target ?? model.specials.text;
  const said = softmax(Float64Array.from(row, (x, id) => (Object.values(never).includes(id) && id !== end ? -Infinity : x / decode.temperature)));
  const order = [...said.keys()].sort((a, b) => said[b] - said[a]);
  let sum = 0;
  const kept = order.filter((id, rank) => {
    const inside = rank === 0 || (sum < decode.top_p && said[id] >= (decode.min_p ?? 0) * said[order[0]] && said[id] > 0 && (!decode.top_k || rank < decode.top_k));
    sum += said[id];
    return inside;
  });
  const whole = kept.reduce((total, id) => total + said[id], 0);
  const places = new Map();
  kept.reduce((start, id) => (places.set(id, { p: said[id], start, end: start + said[id] / whole }), start + said[id] / whole), 0);
  const winner = kept.find((id) => places.get(id).end > step.drawn) ?? kept[kept.length - 1];
  const plain = softmax(row);
  const proof = [h("p", { class: `receipt ${winner === step.chosen.id ? "good" : "bad"}` }, t("dec.proof", { kept: kept.length, of: row.length, mark: winner === step.chosen.id ? "✓" : "✗" })), receipt("softmax", maxDelta(step.top.map((each) => plain[each.id]), step.top.map((each) => each.probability)))];
  return { rows: step.top.map((each) => places.get(each.id) ?? { p: said[each.id], start: 0, end: null }), proof };
}

/** What is remembered of the tokens so far, step by step. */
function cache(ctx, position) {
  const { model, run } = ctx;
  const shape = model.model;
  const [groups, width, layers] = [shape.query_groups, shape.head_width + shape.head_value_width, model.stacks.decoder.layers];
  const steps = (run.answer.tokens.target ?? run.tokens("text")).length;
  const wide = Math.max(4, Math.min(22, 600 / steps));
  const rects = Array.from({ length: steps }, (_, i) => {
    const high = (70 * (i + 1)) / steps;
    return s("rect", { x: i * wide, y: 72 - high, width: wide - 1, height: high, fill: i === position ? "var(--gold)" : "var(--k)", opacity: i <= position ? 1 : 0.35 }, s("title", {}, `t = ${i}: ${(i + 1) * groups * width}`));
  });
  const source = run.tokens("source").length;
  const one = (position + 1) * groups * width;
  return [h("div", { class: "scroll" }, s("svg", { width: steps * wide, height: 74, role: "img", "aria-label": t("dec.cache") }, rects)),
    h("p", {}, t("dec.cacheSum", { t: position + 1, g: groups, k: shape.head_width, v: shape.head_value_width, one, layers, all: (one * layers).toLocaleString() }), source ? " " + t("dec.cacheCross", { s: source, n: source * groups * width }) : "")];
}

/** The probabilities of a classifier's labels: of the text, or of the word that is followed. */
function labels(ctx) {
  const all = ctx.run.answer.labels;
  const own = all.find((each) => each.position === ctx.sel.t) ?? all[0];
  if (!own) return h("p", {}, t("dec.nothing"));
  const best = (each) => Object.entries(each.probabilities).sort((a, b) => b[1] - a[1]);
  const words = own.position === null ? null : h("p", { class: "chips" }, all.map((each) => button([piece(ctx.run.tokens("text")[each.position]), ` ${best(each)[0][0]}`], () => ctx.set({ t: each.position }), { "aria-pressed": each === own, "data-key": `label-${each.position}` })));
  return figure(t("dec.labels"), [words, bars(best(own).map(([label, value], i) => ({ label, value, text: percent(value), mark: i === 0 })), { high: 1, label: t("dec.labels") })], { name: "labels", python: ctx.python("label.logits") });
}

async function norms(ctx) {
  const states = await ctx.tensor("encoder.states");
  const tokens = ctx.run.tokens("text");
  return figure(t("dec.embed"), bars(tokens.map((token, i) => ({ label: piece(token), value: length(states.row(i)), mark: i === ctx.sel.t, onpick: () => ctx.set({ t: i }) }))), { note: t("dec.embedNote"), name: "norms", python: ctx.python("encoder.states") });
}
