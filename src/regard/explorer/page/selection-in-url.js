/** Keeps the selection that all views share, and stores it in the address of the page. */

import { t } from "regard/strings.js";

const DEFAULTS = {
  view: "journey",
  text: "",
  pair: "",
  target: "",
  beam: 4,
  alpha: 0.6,
  temperature: 0,
  top_k: 0,
  top_p: 1,
  seed: 0,
  max_tokens: 64,
  patch: "", // JSON: changes made to the model
  order: "", // of the source tokens: "2,0,1"
  prefix: "", // ids that the output begins with
  checkpoint: "",
  b: "", // JSON: what the second run has different
  ab: "a", // shown: a, b, both, diff
  t: 0, // position in the target or text that is being followed
  stack: "",
  kind: "self_attention",
  layer: 0,
  head: 0,
  q: 0, // position in the source that is followed (encoder)
  k: -1, // key that is looked at, -1: none
  card: 0,
  depth: 2, // 1 story, 2 picture, 3 numbers, 4 code
  stage: "weights", // of a head: scores, scaled, masked, weights, value_weighted
  cell: "", // of the microscope: "name:i,j,..."
  x: "", // what else a view wants to remember: "key=value;..."
  lang: "",
  lesson: "",
};

/** What a link selects within the run; -1 stands for a place that is chosen after the run. */
const PLACES = ["t", "q", "layer", "head"];
const BROKEN = ["alpha", "temperature", "top_p"]; // all other numbers are whole

export let state = { ...DEFAULTS };

const listeners = new Set();
let at; // the address that is shown
export const subscribe = (listener) => listeners.add(listener);

/** Writes a selection into the address. */
export function address(method, selection) {
  try {
    history[method](null, "", "#" + write(selection));
  } catch {
    location.hash = write(selection); // a frame of a notebook forbids it
  }
}

/** Changes the selection, the address and the page. */
export function set(changes, how = {}) {
  const changed = new Set(Object.keys(changes).filter((key) => state[key] !== changes[key]));
  if (!changed.size && !how.again) return;
  state = { ...state, ...changes };
  const method = how.push || changed.has("view") || changed.has("text") ? "pushState" : "replaceState";
  address(method, state);
  at = location.hash;
  for (const listener of listeners) listener(changed);
}

/** Fills in places that were chosen after the run; nothing is drawn again for that. */
export function settle(places) {
  for (const [key, value] of Object.entries(places)) if (state[key] < 0) state = { ...state, [key]: value };
  address("replaceState", state);
  at = location.hash;
}

/** What a view remembers under a name of its own. */
export function extra(key, fallback = "") {
  return new URLSearchParams(state.x).get(key) ?? fallback;
}
export function setExtra(changes) {
  const all = new URLSearchParams(state.x);
  for (const [key, value] of Object.entries(changes)) all.set(key, String(value));
  set({ x: all.toString() });
}

/** The address of a selection: what differs from the defaults. */
export function write(selection) {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(selection)) if (value !== DEFAULTS[key] && !(PLACES.includes(key) && value < 0)) parts.set(key, String(value));
  if (selection.t === 0 && !selects(parts)) parts.set("t", "0"); // somebody went there: another start is not wanted
  return parts.toString();
}
const selects = (parts) => [...PLACES, "stack", "kind"].some((key) => parts.has(key));
export function read(hash) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const found = { ...DEFAULTS, ...(selects(parts) ? {} : Object.fromEntries(PLACES.map((key) => [key, -1]))) };
  for (const [key, value] of parts) {
    if (!(key in DEFAULTS)) continue;
    const number = typeof found[key] === "number";
    if (!number || Number.isFinite(Number(value))) found[key] = !number ? value : BROKEN.includes(key) ? Number(value) : Math.trunc(Number(value));
  }
  return found;
}

/** Takes the selection from the address; where that has no text, this one. */
export function restore(text = "") {
  if (location.hash === at) return; // one step back is told twice
  at = location.hash;
  const before = state;
  state = read(location.hash);
  state.text ||= text;
  const changed = new Set(Object.keys(state).filter((key) => state[key] !== before[key]));
  for (const listener of listeners) listener(changed);
}

/** JSON from the address, which anybody can write. */
function parsed(key, text, good) {
  let found = null;
  try {
    found = JSON.parse(text);
  } catch {}
  if (!found || !good(found)) throw new Error(t("badLink", { key, text: text.slice(0, 80) }));
  return found;
}

/** What is asked of the model for A, or with B's differences. */
export function request(selection, differences = "") {
  const s = { ...selection, ...(differences ? parsed("b", differences, (found) => Object.getPrototypeOf(found) === Object.prototype) : {}) };
  return {
    text: s.text,
    pair: s.pair || null,
    target: s.target || null,
    decode: { beam: s.beam, length_penalty: s.alpha, temperature: s.temperature, top_k: s.top_k, top_p: s.top_p, seed: s.seed, max_tokens: s.max_tokens },
    patch: s.patch ? parsed("patch", String(s.patch), Array.isArray) : [],
    order: s.order ? String(s.order).split(",").map(Number) : null,
    prefix: s.prefix ? String(s.prefix).split(",").map(Number) : null,
    checkpoint: s.checkpoint || null,
  };
}
export const RUN_KEYS = ["text", "pair", "target", "beam", "alpha", "temperature", "top_k", "top_p", "seed", "max_tokens", "patch", "order", "prefix", "checkpoint"];
