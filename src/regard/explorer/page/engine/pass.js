/** Runs one pass of a model over finished texts; keeps its tensors, its logits and the most probable answers. */

import { largest, logSoftmaxRows } from "./arithmetic.js";
import { nextToken } from "./next-token.js";
import { Trace } from "./trace.js";

/** Number of most probable tokens that are shown for each step. */
export const BEST = 10;

/** A finished pass: `inputs` are its texts and the rows that are read, `chosen` the answer at each of them. */
export class Pass {
  constructor(model, inputs, edits, repetitionPenalty = 1) {
    Object.assign(this, { model, network: model.network, inputs, edits, repetitionPenalty, chosen: [] });
    this.trace = new Trace(edits, this.network.twoTexts);
    this.answers = this.network.forward(inputs, this.trace);
    this.size = this.answers ? this.answers.length / inputs.rows.length : 0;
  }

  get lexicon() {
    return this.model.lexicons[this.network.written];
  }

  /** The log-probabilities [R, V] of the answers. */
  get logProbabilities() {
    return (this.known ??= this.scores(this.answers));
  }

  /** Logits [R, V] -> the log-probabilities that decoding uses for this task. */
  scores(logits, size = this.size) {
    const { specials } = this.lexicon;
    if (this.network.task === "classify") return logSoftmaxRows(logits, size);
    if (this.network.task === "fill") {
      const allowed = logits.slice();
      for (let start = 0; start < logits.length; start += size) for (const token of [...specials.never_generated, specials.end]) allowed[start + token] = -Infinity;
      return logSoftmaxRows(allowed, size);
    }
    const written = this.inputs.tokens[this.network.written];
    const result = new Float32Array(logits.length);
    for (let row = 0; row * size < logits.length; row++) result.set(nextToken(logits.subarray(row * size, (row + 1) * size), written.slice(0, row + 1), specials, this.repetitionPenalty), row * size);
    return result;
  }

  /** The most probable answer of each row. */
  best(scores = this.logProbabilities) {
    return Array.from({ length: scores.length / this.size }, (_, row) => largest(scores, 1, row * this.size, (row + 1) * this.size)[0] - row * this.size);
  }
}

/**
 * An entry for each row that is read: its chosen token and the most probable tokens. `given` tells whether the token of
 * a row was forced, `how` has the random number of a sampled row and the number of candidates.
 */
export function describeSteps(pass, given, how) {
  if (!pass.answers || pass.network.task === "classify") return [];
  const { answers, size, lexicon, logProbabilities: scores } = pass;
  const logs = logSoftmaxRows(answers, size);
  return pass.inputs.rows.map((position, row) => {
    const start = row * size;
    const top = largest(scores, BEST, start, start + size)
      .filter((place) => scores[place] > -Infinity)
      .map((place) => ({ ...lexicon.show(place - start), logit: answers[place], probability: Math.exp(scores[place]), log_probability: scores[place] }));
    const chosen = pass.chosen[row];
    let entropy = 0;
    for (let i = start; i < start + size; i++) if (logs[i] > -Infinity) entropy -= Math.exp(logs[i]) * logs[i];
    const [drawn, kept] = how.get(row) ?? [null, null];
    return {
      position,
      chosen: lexicon.show(chosen),
      given: given(row),
      log_probability: Number.isFinite(scores[start + chosen]) ? scores[start + chosen] : null,
      entropy,
      top,
      rest: Math.max(0, 1 - top.reduce((sum, each) => sum + each.probability, 0)),
      drawn,
      kept,
    };
  });
}

/** The probability of each label, for the text or for each word. */
export function describeLabels(pass) {
  if (!pass.answers || pass.network.task !== "classify") return [];
  const { labels, carrier } = pass.network.about;
  const rows = carrier === "word" ? pass.inputs.rows : [null];
  return rows.map((position, row) => ({ position, probabilities: Object.fromEntries(labels.map((label, i) => [label, Math.exp(pass.logProbabilities[row * labels.length + i])])) }));
}
