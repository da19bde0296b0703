/** Log-probabilities of the next token: special tokens are excluded, repeated ones are penalised. */

import { largest, logSoftmaxRows } from "./arithmetic.js";

/** The log-probabilities that decoding uses, of logits [V] that follow the tokens `before`. */
export function nextToken(logits, before, specials, penalty) {
  if (penalty !== 1) {
    logits = logits.slice();
    for (const token of new Set(before)) logits[token] = logits[token] < 0 ? logits[token] * penalty : logits[token] / penalty;
  }
  const scores = logSoftmaxRows(logits, logits.length);
  for (const token of specials.never_generated) scores[token] = -Infinity;
  return scores;
}

/** The place of the highest of numbers. */
export const highest = (scores) => largest(scores, 1)[0];

/** The probabilities of sampling, highest first, with the tokens that they belong to, and which of them are left out. */
function candidates(scores, { temperature, top_k, top_p, min_p }) {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(scores, (score) => Math.exp((score - top) / temperature));
  const total = powers.reduce((a, b) => a + b, 0);
  const tokens = Array.from(powers.keys()).sort((a, b) => powers[b] - powers[a]); // sorting keeps the order of equal ones
  const probabilities = tokens.map((token) => powers[token] / total);
  let start = 0;
  const inside = probabilities.map((probability, i) => {
    start += probability;
    return start - probability < top_p && probability >= min_p * probabilities[0] && probability > 0 && (!top_k || i < top_k);
  });
  inside[0] = true;
  return { tokens, probabilities, inside };
}

/** Samples as the engines do, with the same random numbers; records each number and the number of candidates. */
export class RecordingSampler {
  drawn = [];
  kept = [];
  constructor(random, settings) {
    this.random = random;
    this.settings = settings;
  }
  choose = (scores) => {
    const number = this.random.random();
    const { tokens, probabilities, inside } = candidates(scores, this.settings);
    const count = inside.filter(Boolean).length;
    this.drawn.push(number);
    this.kept.push(count);
    let end = 0;
    const ends = probabilities.map((probability, i) => (end += inside[i] ? probability : 0));
    const place = ends.findIndex((each) => each > number * end);
    return tokens[Math.min(place < 0 ? Infinity : place, count - 1)];
  };
}
