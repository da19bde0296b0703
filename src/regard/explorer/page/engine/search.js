/** Writes an output: greedily, by sampling, or by a beam whose every hypothesis is recorded. */

import { InputError } from "./errors.js";
import { newStep } from "./decoding-steps.js";
import { highest, RecordingSampler } from "./next-token.js";
import { randomSource } from "./random-numbers.js";

const total = (gains) => gains.reduce((a, b) => a + b, 0);

/** The divisor of the log-probability of a hypothesis: ((5 + length) / 6) ^ alpha, or length ^ alpha. */
export const lengthPenalty = (form, alpha) => (length) => (form === "google" ? ((5 + length) / 6) ** alpha : length ** alpha);

/** Writes as the engine of this model would, beginning with the forced tokens of the task. */
export function writeOutput(network, lexicon, task) {
  const { settings, forced, limit } = task;
  const { end, begin } = lexicon.specials;
  if (forced.length > limit) throw new InputError(`prefix: there are ${forced.length} tokens, but at most ${limit} are possible here`);
  const penalty = lengthPenalty(settings.penalty, settings.length_penalty);
  const done = forced.at(-1) === end;
  const step = new Forced(newStep(network, task, lexicon.specials), forced);
  if (settings.beam > 1 && !settings.temperature && !done) {
    const tree = new BeamTree(begin, settings.beam, limit);
    const best = beamSearch(step, { limit, end, width: settings.beam, penalty }, tree);
    tree.finish(best, end);
    return { ...best, given: forced.length, drawn: [], kept: [], beam: tree.toJson(lexicon, penalty, settings) };
  }
  const sampler = new RecordingSampler(randomSource(task.seedIds, 0, settings.seed), settings);
  const best = follow(step, { limit, end, penalty }, settings.temperature && !done ? sampler.choose : highest);
  return { ...best, given: forced.length, drawn: sampler.drawn, kept: sampler.kept, beam: null };
}

/** A step that forces the first tokens; they keep the probability that the model gives them. */
class Forced {
  constructor(step, tokens) {
    this.step = step;
    this.left = [...tokens];
  }
  start = () => this.only(this.step.start());
  advance = (tokens, parents) => this.only(this.step.advance(tokens, parents));
  only(scores) {
    if (!this.left.length) return scores;
    const token = this.left.shift();
    return scores.map((row) => row.map((score, i) => (i === token ? score : -Infinity)));
  }
}

const output = (tokens, gains, penalty, finished) => ({ tokens, gains, score: total(gains) / penalty(gains.length), finished });

/** The output whose tokens are chosen one after the other. */
function follow(step, { limit, end, penalty }, choose) {
  const [tokens, gains] = [[], []];
  for (let [scores] = step.start(); ; [scores] = step.advance([tokens.at(-1)], [0])) {
    const token = choose(scores);
    gains.push(scores[token]);
    if (token === end) return output(tokens, gains, penalty, true);
    tokens.push(token);
    if (gains.length >= limit) return output(tokens, gains, penalty, false);
  }
}

/**
 * The highest-scored output. At each step the 2 * width best continuations are candidates: those among the first
 * `width` that end are found, and the first `width` that do not end stay alive.
 */
function beamSearch(step, rules, tree) {
  const { limit, end, width, penalty } = rules;
  const found = [];
  let alive = [{ tokens: [], gains: [] }];
  for (let scores = step.start(); ; scores = step.advance(alive.map((each) => each.tokens.at(-1)), alive.map((each) => each.parent))) {
    const candidates = continuations(alive, scores, 2 * width);
    const before = alive;
    alive = [];
    const fates = candidates.map(({ parent, token, gain }, rank) => {
      const gains = [...before[parent].gains, gain];
      if (token === end) return rank < width && found.push(output(before[parent].tokens, gains, penalty, true)) ? "found" : "dropped";
      return alive.length < width && alive.push({ tokens: [...before[parent].tokens, token], gains, parent }) ? "alive" : "dropped";
    });
    tree.watch(candidates, fates);
    if (!alive.length || alive[0].gains.length >= limit || isSettled(alive, found, rules)) break;
  }
  const cut = alive.filter((each) => each.gains.length >= limit).map((each) => output(each.tokens, each.gains, penalty, false));
  return [...found, ...cut].sort((a, b) => b.score - a.score)[0];
}

/** Whether nothing alive can still beat the worst of the `width` best found. */
function isSettled(alive, found, { limit, width, penalty }) {
  const attainable = Math.max(...alive.map((each) => total(each.gains))) / penalty(limit);
  const scores = found.map((each) => each.score).sort((a, b) => b - a).slice(0, width);
  return scores.length === width && scores.at(-1) >= attainable;
}

/** The best possible continuations of all hypotheses, best first. */
function continuations(alive, scores, count) {
  const best = [];
  scores.forEach((row, parent) => {
    const sumBefore = Math.fround(total(alive[parent].gains));
    for (let token = 0; token < row.length; token++) {
      const value = Math.fround(sumBefore + row[token]);
      if (value === -Infinity || (best.length === count && !(value > best[count - 1].total))) continue;
      let at = best.length;
      while (at > 0 && value > best[at - 1].total) at--;
      best.splice(at, 0, { total: value, parent, token, gain: row[token] });
      if (best.length > count) best.pop();
    }
  });
  return best;
}

/** Records every hypothesis of a beam search. */
class BeamTree {
  constructor(begin, width, limit) {
    Object.assign(this, { width, limit, alive: [0], final: 0 });
    this.nodes = [{ parent: null, token: begin, gains: [], state: "alive", reason: "" }];
  }

  /** Records one step of the search. */
  watch(candidates, fates) {
    const outcomes = { alive: ["alive", ""], found: ["done", "ended"], dropped: ["pruned", `not among the ${this.width} best`] };
    const before = this.alive;
    const continued = new Set();
    this.alive = [];
    candidates.forEach(({ parent, token, gain }, i) => {
      const place = before[parent];
      const [state, reason] = outcomes[fates[i]];
      if (fates[i] === "alive") this.alive.push(this.nodes.length);
      continued.add(place);
      this.nodes.push({ parent: place, token, gains: [...this.nodes[place].gains, gain], state, reason });
    });
    for (const place of before) if (!continued.has(place)) Object.assign(this.nodes[place], { state: "pruned", reason: "outdone at the next step" });
  }

  /** Records the outcome of the hypotheses that were unfinished at the end, and marks the best one. */
  finish(best, end) {
    for (const place of this.alive) {
      const node = this.nodes[place];
      [node.state, node.reason] = node.gains.length >= this.limit ? ["done", "length limit"] : ["pruned", "search was settled"];
    }
    const path = [...best.tokens, ...(best.finished ? [end] : [])].join();
    this.final = this.nodes.findIndex((node, i) => node.state === "done" && this.path(i).join() === path);
    this.nodes[this.final].state = "final";
  }

  /** The tokens from the root, which is excluded, to a node. */
  path(place) {
    const tokens = [];
    for (let at = this.nodes[place]; at.parent !== null; at = this.nodes[at.parent]) tokens.unshift(at.token);
    return tokens;
  }

  toJson(lexicon, penalty, { penalty: form, length_penalty: alpha }) {
    const nodes = this.nodes.map(({ parent, token, gains, state, reason }, i) => ({
      i, parent, t: gains.length, ...lexicon.show(token),
      log_probability: gains.at(-1) ?? 0, total: total(gains), score: gains.length ? total(gains) / penalty(gains.length) : 0, state, reason,
    }));
    return { nodes, width: this.width, penalty: { form, alpha }, final: this.final };
  }
}
