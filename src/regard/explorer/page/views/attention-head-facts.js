/** Helps the attention views: lists the kinds of attention, describes heads in words, and measures what changes without them. */

import { COLOURINGS } from "regard/color-scales.js";
import { button, choice, fixed, h, shown } from "regard/dom-elements.js";
import { ablate } from "regard/model-data-client.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

/** The kinds of attention that a model has: who asks, who is asked. */
export const kinds = (model) =>
  Object.entries(model.stacks).flatMap(([stack, { kinds, layers, text }]) =>
    kinds.map((kind) => ({ stack, kind, layers, text, site: `${stack}.${kind}`, keys: kind === "cross_attention" ? "source" : text, self: kind === "self_attention", causal: stack === "decoder" && kind === "self_attention" })),
  );

export const headCount = (model) => kinds(model).reduce((sum, each) => sum + each.layers * model.model.heads, 0);

const MANY = 24;

/** What the colours of attention are relative to: of many tokens each has little, so then it is the largest of the row. */
export const colouring = (columns, known = COLOURINGS) => (known.includes(extra("colour")) ? extra("colour") : columns > MANY ? "row" : known[0]);

export const chooseColouring = (value, known = COLOURINGS) => choice(t("colour"), known.map((each) => [each, t(`colour.${each}`)]), value, (colour) => setExtra({ colour }));

/** The runs that a pane shows: one, or both whose difference it is. */
export const shownRuns = (ctx) => (ctx.which === "diff" ? [ctx.a, ctx.b] : [ctx.run]);

/** Positions that become one row: tokens, or words; special tokens may be left out. */
export function groups(tokens, words, hide) {
  const found = [];
  tokens.forEach((token, i) => {
    if (hide && token.special) return;
    const last = found.at(-1);
    if (words && token.word >= 0 && last && tokens[last[0]].word === token.word) last.push(i);
    else found.push([i]);
  });
  return found.length ? found : tokens.map((_, i) => [i]);
}

/** A head's weights by groups: rows are means, columns are sums; `renormalise` makes every row sum to 1 again. */
export function arranged(tensor, head, rows, columns, renormalise) {
  const numbers = tensor.row(head);
  const width = tensor.shape[2];
  const data = new Float32Array(rows.length * columns.length);
  rows.forEach((from, i) => {
    const row = data.subarray(i * columns.length, (i + 1) * columns.length);
    columns.forEach((to, j) => {
      let mass = 0;
      for (const q of from) for (const k of to) mass += numbers[q * width + k];
      row[j] = mass / from.length;
    });
    const sum = renormalise ? row.reduce((a, b) => a + b, 0) : 0;
    if (sum > 0) row.forEach((x, j) => (row[j] = x / sum));
  });
  return { rows: rows.length, columns: columns.length, data };
}

/** Mean entropy, mean distance, and the pattern if there is a clear one: more than half of the weight lies there, or nearly evenly. */
export function described({ rows, columns, data }, { self, causal }, special) {
  const sums = { previous: 0, next: 0, first: 0, self: 0, separator: 0 };
  const counts = { ...sums };
  let [bits, distance, even, several] = [0, 0, 0, 0];
  for (let i = 0; i < rows; i++) {
    const seen = causal ? Math.min(columns, i + 1) : columns;
    const row = data.subarray(i * columns, i * columns + seen);
    let [own, marks] = [0, 0];
    row.forEach((p, j) => {
      if (p > 0) own -= p * Math.log(p);
      distance += p * Math.abs(i - j);
      if (j > 0 && (special[j] || (!causal && j === columns - 1))) marks += p;
    });
    bits += own;
    if (seen < 2) continue;
    several++;
    even += own / Math.log(seen);
    const note = (name, p) => void (p !== undefined && ((sums[name] += p), counts[name]++));
    note("first", row[0]);
    note("separator", marks);
    if (self) note("self", row[i]), note("previous", row[i - 1]), note("next", row[i + 1]);
  }
  const [best] = Object.keys(sums).map((name) => [sums[name] / (counts[name] || 1), name]).sort((a, b) => b[0] - a[0]);
  return { entropy: bits / rows, distance: distance / rows, tag: best[0] > 0.5 ? best[1] : several && even / several > 0.8 ? "broad" : "" };
}

/** Measurements by run: running, or with a result. */
const measured = new Map();
const resultOf = (run) => measured.get(run.answer.run)?.result;

function measure(run) {
  const id = run.answer.run;
  const known = measured.get(id);
  if (known?.promise) return known;
  const controller = new AbortController();
  const entry = { cancel: () => controller.abort(), promise: ablate(run, "heads", "zero", controller.signal), result: null };
  entry.promise.then((result) => (entry.result = result), (error) => measured.set(id, { failed: error }));
  measured.set(id, entry);
  return entry;
}

/** A button that measures what each head does, and one that stops it; `done` is called when it is known. */
export function measuring(ctx, done) {
  const runs = shownRuns(ctx);
  const count = headCount(ctx.model);
  const box = h("span", { role: "status", class: "measuring" });
  const show = (key, act, ...words) => box.replaceChildren(...words, button(t(key), act, { "data-key": "measure" }));
  const start = () => {
    const entries = runs.map(measure);
    show("att.cancel", () => entries.forEach((each) => each.cancel()), h("span", { class: "note" }, t("att.measuring", { n: count }), " "));
    Promise.all(entries.map((each) => each.promise)).then(
      () => (box.replaceChildren(), done()),
      (error) => show("att.measure", start, error.name === "AbortError" ? "" : `${error.offline ? t("offlineMissing") : error.message} `),
    );
  };
  const tokens = Math.max(...Object.values(ctx.run.answer.tokens).map((each) => each.length));
  const stopped = runs.some((run) => measured.get(run.answer.run)?.failed);
  if (ctx.model.task !== "embed" && !runs.every(resultOf)) stopped || count > 48 || tokens > 40 ? show("att.measure", start) : start();
  return box;
}

/** Returns the token or label that a run chose at one of its steps, and the place of this step. */
export function answerAt({ answer: { steps, labels } }, at) {
  const { position, chosen, probabilities } = steps[at] ?? labels[at];
  const name = chosen ? shown(chosen) : Object.entries(probabilities).sort((x, y) => y[1] - x[1])[0][0];
  return { name, where: position === null ? "" : ` (t = ${position})`, key: `${chosen?.id ?? name} ${position}` };
}

/** What leaving a head out does to log p of an answer of each run shown: at the followed step, or (encoder) where it does most. */
export function effects(ctx, { site, stack }, layer, head) {
  let at = stack === "decoder" ? ctx.run.answer.steps.findIndex((step) => step.position === ctx.sel.t) : -1;
  const found = shownRuns(ctx).map((run) => {
    const result = resultOf(run);
    const deltas = result?.heads[site]?.[layer]?.[head] ?? [];
    if (at < 0) at = deltas.reduce((best, x, i) => (Math.abs(x) > Math.abs(deltas[best]) ? i : best), 0);
    return at in deltas ? { value: deltas[at], becomes: result.top[site][layer][head][at], ...answerAt(run, at) } : null;
  });
  return found.includes(null) ? null : found;
}

/** The effect as one number: of two runs, how much more it is in B; none where A and B answer differently there. */
export const single = (found) => {
  const [a, b] = found ?? [];
  return !b ? (a?.value ?? null) : a.key === b.key ? b.value - a.value : null;
};

/** Describes effects briefly: the number and the new most probable token; for two runs the difference, or both. */
export function brief(found) {
  const [a, b] = found;
  if (!b) return [fixed(a.value, 2), a.becomes ? ` ${a.name} → ${shown({ display: a.becomes })}` : ""];
  return single(found) === null ? ["", `A ${a.name} ${fixed(a.value, 2)} | B ${b.name} ${fixed(b.value, 2)}`] : [fixed(single(found), 2), ""];
}
