/**
 * Computes the answer to a question of a lesson from a run of the model.
 *
 *     argmax(encoder.layers.1.self_attention.weights[0, tired])
 *     std(decoder.layers.0.self_attention.scores) / std(decoder.layers.0.self_attention.scaled)
 *     same(output, base(output))
 *
 * `base(...)` is the run without the question's `with:`. An index is a number, or a token of the text of that axis.
 */

import { shown } from "regard/dom-elements.js";

const FUNCTIONS = ["argmax", "max", "min", "sum", "mean", "std", "norm", "count", "same", "distance", "round"];
const PATTERN = /\s*(?:([0-9]+(?:\.[0-9]+)?)|([A-Za-z_][\w.]*)|([()[\],/*+-]))/y;

/** Splits an expression into numbers, names and signs; the text of an index stays whole. */
function tokenize(text) {
  const tokens = [];
  for (let at = 0; text.slice(at).trim(); ) {
    PATTERN.lastIndex = at;
    const match = PATTERN.exec(text);
    if (!match) throw new Error(`${text}: cannot read ${text.slice(at, at + 20)}`);
    at = PATTERN.lastIndex;
    if (match[3] === "[") {
      const end = text.indexOf("]", at);
      if (end < 0) throw new Error(`${text}: ] is missing`);
      tokens.push({ kind: "indices", value: text.slice(at, end).split(",").map((each) => each.trim()) });
      at = end + 1;
    } else if (match[1]) tokens.push({ kind: "number", value: Number(match[1]) });
    else if (match[2]) tokens.push({ kind: "name", value: match[2] });
    else tokens.push({ kind: "sign", value: match[3] });
  }
  return tokens;
}

/** Parses an expression into a tree; multiplication and division bind tighter than addition and subtraction. */
export function parseExpression(text) {
  const tokens = tokenize(text);
  let at = 0;
  const sign = (value) => tokens[at]?.kind === "sign" && tokens[at].value === value && ++at;
  const expect = (value) => {
    if (!sign(value)) throw new Error(`${text}: ${value} is missing`);
  };
  const atom = () => {
    const token = tokens[at++];
    if (token?.kind === "number") return { kind: "number", value: token.value };
    if (token?.kind === "sign" && token.value === "(") {
      const inside = chain(["+", "-"], product);
      expect(")");
      return inside;
    }
    if (token?.kind !== "name") throw new Error(`${text}: a value is missing`);
    if (sign("(")) {
      if (token.value !== "base" && !FUNCTIONS.includes(token.value)) throw new Error(`${text}: unknown function ${token.value}`);
      const inputs = [];
      do inputs.push(chain(["+", "-"], product));
      while (sign(","));
      expect(")");
      return { kind: "call", name: token.value, inputs };
    }
    const indices = tokens[at]?.kind === "indices" ? tokens[at++].value : [];
    return { kind: "value", name: token.value, indices };
  };
  const chain = (signs, next) => {
    let left = next();
    for (let name = signs.find(sign); name; name = signs.find(sign)) left = { kind: "call", name, inputs: [left, next()] };
    return left;
  };
  const product = () => chain(["*", "/"], atom);
  const tree = chain(["+", "-"], product);
  if (at < tokens.length) throw new Error(`${text}: nothing may follow ${tokens[at - 1].value}`);
  return tree;
}

/** Returns the place of an index on an axis: a number, or a token's text ("it", or "it#2" for the second one). */
function place(index, axis, run) {
  if (/^\d+$/.test(index)) return Number(index);
  const text = axis?.split(":")[1];
  const tokens = text ? run.tokens(text) : [];
  const [word, number = "1"] = index.split("#");
  const places = tokens.flatMap((token, i) => (token.text.trim() === word || shown(token) === word ? [i] : []));
  if (!places[Number(number) - 1] && places[Number(number) - 1] !== 0) throw new Error(`the ${text ?? "axis"} has no token ${index}`);
  return places[Number(number) - 1];
}

/** Returns a value of a run: its output, the probability of a step's token, the tokens of a text, or a tensor. */
async function valueOf({ name, indices }, run) {
  const { answer } = run;
  if (name === "output") return answer.text;
  if (name === "probability") {
    const step = answer.steps.find((each) => each.position === place(indices[0], "step:target", run));
    if (!step) throw new Error(`the model writes nothing at ${indices[0]}`);
    return Math.exp(step.log_probability);
  }
  if (Object.hasOwn(answer.tokens, name)) return { numbers: run.tokens(name).map((token) => token.id), axis: "" };
  if (!run.has(name)) throw new Error(`this model has no tensor ${name}`);
  const tensor = await run.tensor(name);
  const places = indices.map((index, i) => place(index, tensor.axes[i], run));
  if (places.some((each, i) => each >= tensor.shape[i])) throw new Error(`${name} is ${tensor.shape.join(" × ")}`);
  const part = tensor.sub(...places);
  return part.shape.length ? { numbers: part.data, axis: part.shape.length === 1 ? part.axes[0] : "" } : part.data[0];
}

const numbersOf = (value) => (typeof value === "object" ? Array.from(value.numbers, Number) : [value]);
const total = (numbers) => numbers.reduce((sum, each) => sum + each, 0);

/** Reduces one value by a function of this name. */
function reduce(name, value, run) {
  const numbers = numbersOf(value).filter(Number.isFinite);
  const mean = total(numbers) / numbers.length;
  switch (name) {
    case "argmax": {
      const all = numbersOf(value);
      const best = all.indexOf(Math.max(...all));
      const token = run.tokens(value.axis?.split(":")[1])[best];
      return token ? token.text.trim() || shown(token) : best;
    }
    case "max": return Math.max(...numbers);
    case "min": return Math.min(...numbers);
    case "sum": return total(numbers);
    case "mean": return mean;
    case "std": return Math.sqrt(total(numbers.map((each) => (each - mean) ** 2)) / numbers.length);
    case "norm": return Math.hypot(...numbers);
    case "count": return numbersOf(value).length;
    default: return Math.round(numbers[0]);
  }
}

/** Returns the answer to an expression: a number, a text, or true or false. */
async function evaluate(tree, run, base) {
  if (tree.kind === "number") return tree.value;
  if (tree.kind === "value") return valueOf(tree, run);
  if (tree.name === "base") return evaluate(tree.inputs[0], base, base);
  const [left, right] = await Promise.all(tree.inputs.map((each) => evaluate(each, run, base)));
  if (right === undefined) return reduce(tree.name, left, run);
  const [a, b] = [numbersOf(left), numbersOf(right)];
  switch (tree.name) {
    case "same": return typeof left === "object" ? a.length === b.length && a.every((each, i) => each === b[i]) : left === right;
    case "distance": return Math.max(...a.map((each, i) => Math.abs(each - b[i])));
    case "+": return a[0] + b[0];
    case "-": return a[0] - b[0];
    case "*": return a[0] * b[0];
    default: return a[0] / b[0];
  }
}

/** Computes the answer of a question from its run and the run of the lesson. */
export async function answerOf(expression, run, base) {
  const value = await evaluate(parseExpression(expression), run, base);
  if (typeof value === "object") throw new Error(`${expression}: the answer is ${value.numbers.length} numbers; choose one, or use max, sum, argmax ...`);
  return value;
}

/** Whether a reader's guess is right: the same words, or a number within a tenth. */
export function isRight(guess, value) {
  if (typeof value !== "number") return guess.trim().toLowerCase() === String(value).trim().toLowerCase();
  const number = Number(guess.trim().replace(",", "."));
  return guess.trim() !== "" && Math.abs(number - value) <= Math.max(0.1 * Math.abs(value), 1e-9);
}
