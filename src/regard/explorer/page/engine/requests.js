/** Reads the request of a run: checks each field, and completes the decoding settings. */

import { InputError, quoted } from "./errors.js";

const MANY = Number.MAX_SAFE_INTEGER;

/** Decoding settings that a request can change, with their type and bounds. */
const DECODE = {
  beam: { whole: true, low: 1, ceiling: 10_000 },
  length_penalty: { low: 0, high: 10 },
  penalty: { values: ["google", "power"] },
  temperature: { low: 0 },
  top_k: { whole: true, low: 0, ceiling: MANY },
  top_p: { low: 0, high: 1 },
  min_p: { low: 0, high: 1 },
  repetition_penalty: { low: 0.01, high: 100 },
  seed: { whole: true, low: 0, ceiling: MANY },
  max_tokens: { whole: true, low: 1, ceiling: MANY },
};
const FIELDS = { text: "text", target: "text", decode: "object", patch: "list", order: "list", prefix: "list", checkpoint: "text", pair: "text", to: "text" };
const NAMES = { text: "text", object: "an object", list: "a list" };
const PATCH = ["site", "op", "head", "query", "key", "position"];

/** The complete request, in the order of the server's fields, and the decoding settings of the run. */
export function readRequest(body, own, limits) {
  for (const name of Object.keys(body)) if (!Object.hasOwn(FIELDS, name)) throw new InputError(`${name}: unknown field`);
  if ((body.text ?? null) === null) throw new InputError("text: is missing");
  for (const [name, kind] of Object.entries(FIELDS)) {
    const value = body[name] ?? null;
    if (value !== null && kindOf(value) !== kind) throw new InputError(`${name}: must be ${NAMES[kind]}${name === "text" ? "" : " or null"}`);
    if (kind === "text" && value !== null && [...value].length > 20_000) throw new InputError(`${name}: must have at most 20000 characters`);
  }
  const { text, target = null, checkpoint = null, pair = null, to = null } = body;
  const order = tokenNumbers("order", body.order, limits);
  const prefix = tokenNumbers("prefix", body.prefix, limits);
  const settings = readDecode(body.decode ?? {}, own, limits);
  if (target !== null && prefix?.length) throw new InputError("target and prefix: pass only one of them, because both set the output");
  if (order && [...order].sort((a, b) => a - b).some((place, i) => place !== i)) throw new InputError(`order: must contain each number from 0 to ${order.length - 1} once`);
  const decode = Object.fromEntries(Object.keys(DECODE).map((name) => [name, settings[name]]));
  const request = { text, target, decode, patch: (body.patch ?? []).map(readPatch), order, prefix: prefix?.length ? prefix : null, checkpoint, pair, ...(to === null ? {} : { to }) };
  return { request, settings };
}

const kindOf = (value) => (typeof value === "string" ? "text" : Array.isArray(value) ? "list" : typeof value);

function tokenNumbers(name, values, limits) {
  if ((values ?? null) === null) return null;
  if (values.length > limits.tokens) throw new InputError(`${name}: must have at most ${limits.tokens} numbers`);
  for (const value of values) if (!Number.isInteger(value)) throw new InputError(`${name}: must be a list of whole numbers`);
  return values;
}

function readPatch(patch, number) {
  if (kindOf(patch) !== "object" || patch === null) throw new InputError(`patch[${number}]: must be an object`);
  for (const name of Object.keys(patch)) if (!PATCH.includes(name)) throw new InputError(`patch[${number}].${name}: unknown field`);
  for (const name of ["site", "op"]) if (typeof patch[name] !== "string") throw new InputError(`patch[${number}].${name}: must be text`);
  const given = PATCH.filter((name) => (patch[name] ?? null) !== null);
  for (const name of given.slice(2)) if (!Number.isInteger(patch[name]) || patch[name] < 0) throw new InputError(`patch[${number}].${name}: must be a whole number or null`);
  return Object.fromEntries(given.map((name) => [name, patch[name]]));
}

/** The model's own decoding settings with these options, within the explorer's limits. */
function readDecode(options, own, limits) {
  const most = { beam: limits.beam, max_tokens: limits.tokens };
  const settings = { ...own, beam: Math.min(own.beam, most.beam), max_tokens: Math.min(own.max_tokens, most.max_tokens) };
  for (const [name, value] of Object.entries(options)) {
    const rule = Object.hasOwn(DECODE, name) ? DECODE[name] : null;
    if (!rule) throw new InputError(`decode.${name}: unknown setting; decode has ${Object.keys(DECODE).join(", ")}`);
    const fault = faultOf(value, rule);
    if (fault) throw new InputError(`decode.${name} must be ${fault}`);
    settings[name] = value;
  }
  for (const [name, limit] of Object.entries(most)) if (settings[name] > limit) throw new InputError(`decode.${name}: must be at most ${limit} here, not ${settings[name]}`);
  return settings;
}

/** What a decoding setting must be that this value is not, or an empty text. */
function faultOf(value, { values, whole, low, high, ceiling = 1_000_000 }) {
  if (values) return values.includes(value) ? "" : `one of ${values.join(", ")}, not ${quoted(value)}`;
  if (typeof value !== "number" || (whole && !Number.isInteger(value))) return `${whole ? "a whole number" : "a number"}, not ${typeof value === "number" ? value : quoted(value)}`;
  const shown = whole || !Number.isInteger(value) ? value : `${value}.0`; // as Python writes it
  if (whole && value > ceiling) return `at most ${ceiling.toLocaleString("en")}, not ${shown}`;
  if (value < low || value > (high ?? Infinity)) return `${high === undefined ? `at least ${low}` : `from ${low} to ${high}`}, not ${shown}`;
  return "";
}
