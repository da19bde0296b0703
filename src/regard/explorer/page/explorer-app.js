/** Starts the page: runs the model on the selected text and shows the selected view. */

import { onTheme } from "regard/color-scales.js";
import { h, shown } from "regard/dom-elements.js";
import { model as askModel, offline, run as askRun } from "regard/model-data-client.js";
import { map } from "regard/model-diagram.js";
import { frame, header, lessonChoice, playhead, present, presenting, tabs, titleOf } from "regard/page-header-and-tabs.js";
import { address, read, request, restore, RUN_KEYS, set, settle, state, subscribe } from "regard/selection-in-url.js";
import { startingPlaces } from "regard/starting-places.js";
import { speak, t } from "regard/strings.js";

const VIEWS = {
  __proto__: null,
  whole: () => import("regard/views/whole-model.js"),
  journey: () => import("regard/views/sentence-journey.js"),
  atlas: () => import("regard/views/attention-atlas.js"),
  head: () => import("regard/views/single-attention-head.js"),
  microscope: () => import("regard/views/number-microscope.js"),
  decoding: () => import("regard/views/decoding-steps.js"),
  beam: () => import("regard/views/beam-search-tree.js"),
  lens: () => import("regard/views/logit-lens.js"),
  whatif: () => import("regard/views/what-if-comparison.js"),
  positions: () => import("regard/views/position-encodings.js"),
  space: () => import("regard/views/embedding-space.js"),
  alignment: () => import("regard/views/word-alignment.js"),
  time: () => import("regard/views/training-history.js"),
  weights: () => import("regard/views/weight-matrices.js"),
};

/** Views of which there is no difference to show. */
const PLAIN = ["whole", "journey", "microscope", "decoding", "beam", "positions", "space", "time", "weights"];

/** Views that this model has something for. */
const available = (model) => Object.keys(VIEWS).filter((name) => (name === "alignment" ? "target" in model.embeddings : name === "beam" ? model.task === "translate" || model.task === "write" : true));

let model;

const runs = { a: null, b: null };
let turn = 0; // of drawing
let asked = 0; // runs asked for, and the last one answered
let answered = 0;

let view = null;
let linked = false; // whether the address of the page came with a text
let lessons = null; // the choice of a lesson, in the header

/** What a view is given: the model, the run to show, and ways to its numbers. */
function context(which) {
  const run = which === "b" ? runs.b : runs.a;
  const sel = settled(run);
  const stack = { name: sel.stack, ...model.stacks[sel.stack] };
  return {
    model,
    run,
    a: runs.a,
    b: runs.b,
    which,
    sel,
    set,
    /** The stack that is selected, with its layers, kinds of attention and text. */
    stack,
    /** "decoder.layers.1" and "decoder.layers.1.cross_attention". */
    layer: `${sel.stack}.layers.${sel.layer}`,
    attention: `${sel.stack}.layers.${sel.layer}.${sel.kind}`,
    /** The position that is followed, in the text of the selected stack. */
    position: stack.text === "source" ? sel.q : sel.t,
    /** Goes to another position in a text. */
    follow: (text, place) => set(text === "source" ? { q: place } : { t: place }),
    /** The text that keys of the selected attention belong to. */
    keys: sel.kind === "cross_attention" ? "source" : stack.text,
    /** The tokens of a text in words; of a difference both where A and B have others. */
    labels: (text) => {
      const theirs = which === "diff" ? runs.b.tokens(text) : [];
      return run.tokens(text).map((token, i) => (theirs[i] && theirs[i].id !== token.id ? `${shown(token)} | ${shown(theirs[i])}` : shown(token)));
    },
    /** A tensor of the run, or what B has more than A. */
    tensor: async (name) => {
      if (which !== "diff" || !runs.b) return run.tensor(name);
      const [ours, theirs] = await Promise.all([run.tensor(name), runs.b.tensor(name)]);
      if (String(ours.shape) !== String(theirs.shape)) throw new Error(t("differentShapes"));
      return theirs.minus(ours);
    },
    go: (to, changes = {}) => set({ view: to, ...changes }),
    /** Opens the first card of this kind in the journey. */
    openCard: async (key, changes) => set({ view: "journey", card: (await VIEWS.journey()).cardIndex(model, key), ...changes }),
    /** Python that makes the tensor shown. */
    python: (name, index = "") => python(which === "a" ? ["trace"] : which === "b" ? ["", "trace"] : ["a", "b"], name, index),
  };
}

/** The selection with every place inside the run. */
function settled(run) {
  const clamp = (x, size) => Math.max(0, Math.min(x, size - 1));
  const stack = Object.hasOwn(model.stacks, state.stack) ? state.stack : Object.keys(model.stacks)[0];
  const kind = model.stacks[stack].kinds.includes(state.kind) ? state.kind : "self_attention";
  const last = run.tokens("target").length || run.tokens("text").length;
  return { ...state, stack, kind, layer: clamp(state.layer, model.stacks[stack].layers), head: clamp(state.head, model.model.heads), t: clamp(state.t, last), q: clamp(state.q, run.tokens("source").length || 1) };
}
/** Python that makes a tensor of A, of B, or what B has more: `names` are those of the traces of A and B, empty where one is not wanted. */
function python(names, name, index) {
  const literal = (value) => JSON.stringify(value).replace(/"(\\.|[^"\\])*"|null|true|false/g, (word) => ({ null: "None", true: "True", false: "False" })[word] ?? word);
  const look = (trace, n) => {
    const asked = n ? request(state, state.b) : request(state);
    const options = Object.entries({ target: asked.target, pair: asked.pair, patch: asked.patch.length ? asked.patch : null, order: asked.order, prefix: asked.prefix, checkpoint: asked.checkpoint, decode: asked.decode }).filter(([, value]) => value !== null);
    return trace && `${trace} = regard.look(${JSON.stringify(model.path ?? model.name)}, ${JSON.stringify(asked.text)}${options.map(([key, value]) => `, ${key}=${literal(value)}`).join("")})\n`;
  };
  const [first, ...others] = names.filter(Boolean).map((trace) => `${trace}[${JSON.stringify(name)}]`).reverse();
  return `import regard\n\n${names.map(look).join("")}${others.length ? `(${first} - ${others[0]})` : first}${index}\n`;
}

/** Runs the model anew where the request has changed. */
async function update(changed) {
  VIEWS[state.view]?.().catch(() => {}); // loads while the model runs
  document.body.setAttribute("aria-busy", "true"); // until it is drawn
  await speak(state.lang, nameOf(state));
  lessons = await lessonChoice().catch(() => null);
  const keepText = linked || !changed.has("lesson");
  linked = false;
  if (state.lesson || parts.lesson.firstChild) import("regard/lesson-panel.js").then(({ drawLesson }) => drawLesson(parts.lesson, model, keepText));
  if (RUN_KEYS.some((key) => changed.has(key)) || changed.has("b") || !runs.a) {
    const ticket = ++asked;
    try {
      const [a, b] = await Promise.all([askRun(request(state)), state.b ? askRun(request(state, state.b)) : null]);
      const places = await startingPlaces(model, a, state);
      if (ticket !== asked) return;
      settle(places);
      Object.assign(runs, { a, b });
      answered = ticket;
      delete document.body.dataset.error;
    } catch (error) {
      if (ticket !== asked) return;
      answered = ticket;
      Object.assign(runs, { a: null, b: null }); // what is shown is always what was asked
      surround();
      return complain(error);
    }
  }
  if (runs.a) await draw();
}

const nameOf = ({ view }) => (view in VIEWS ? view : "journey");

/** The sentence and the views, which are there even if the model could not run. */
function surround() {
  parts.tabs.replaceChildren(...tabs(model, available(model), nameOf(state)));
  parts.header.replaceChildren(...header(model, runs, offline, lessons));
}

/** Shows the selected view; what was focused stays so. */
async function draw() {
  const ticket = ++turn;
  const name = nameOf(state);
  const sides = !runs.b || state.ab === "a" ? ["a"] : state.ab === "both" ? ["a", "b"] : [state.ab];
  const panes = sides.map((side) => h("section", { class: "pane", "data-side": side, "aria-label": runs.b ? t(`side.${side}`) : titleOf(model, name) }));
  try {
    const module = await VIEWS[name]();
    await Promise.all(
      panes.map(async (pane, i) => {
        if (runs.b) pane.append(h("p", { class: "side" }, t(`side.${sides[i]}`), sides[i] === "diff" && PLAIN.includes(name) ? h("span", { class: "note" }, ` ${t("showsA")}`) : null));
        try {
          await module.render(pane, context(sides[i] === "diff" && PLAIN.includes(name) ? "a" : sides[i]));
        } catch (error) {
          pane.append(told(error));
        }
      }),
    );
    if (ticket !== turn) return;
    view = module;
  } catch (error) {
    if (ticket !== turn) return;
    panes[0].append(told(error));
  }
  const key = document.activeElement?.getAttribute("data-key");
  const within = document.activeElement?.closest("main, #rail, #playhead");
  const at = scrollY;
  const shownContext = context(sides[0]);
  parts.rail.replaceChildren(map(shownContext));
  surround();
  parts.playhead.replaceChildren(...playhead(shownContext));
  for (const here of parts.playhead.querySelectorAll(".here")) here.parentElement.scrollLeft = here.offsetLeft - 90; // on a phone
  parts.main.replaceChildren(...panes);
  parts.main.className = panes.length > 1 ? "two" : "";
  scrollTo({ top: at, behavior: "instant" });
  if (key) document.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  else if (within && document.activeElement === document.body) parts.main.focus({ preventScroll: true });
  document.title = `${titleOf(model, name)} · ${model.name} · Regard`;
  if (answered === asked) document.body.removeAttribute("aria-busy");
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
}
const told = (error) => h("p", { class: "error", role: "alert" }, error?.offline ? t("offlineMissing") : error instanceof TypeError && /import/i.test(error.message) ? t("noServer") : String(error?.message ?? error));
function complain(error) {
  document.body.dataset.error = String(error?.message ?? error);
  document.body.removeAttribute("aria-busy");
  parts.main.replaceChildren(told(error));
}

const parts = frame();

document.addEventListener("keydown", (event) => {
  const target = (event.target);
  if (event.altKey || event.ctrlKey || event.metaKey || target.closest("input, textarea, select, [contenteditable]") || !runs.a) return;
  if (event.key === " " && target.closest("button, a, summary, [role=button]")) return;
  const ctx = context("a");
  const handler = view?.keys?.[event.key] ?? KEYS[event.key];
  if (!handler) return;
  event.preventDefault();
  handler(ctx);
});

/** Keys that mean the same in every view. */
const KEYS = {
  ArrowUp: ({ sel, stack }) => set({ layer: Math.min(stack.layers - 1, sel.layer + 1) }),
  ArrowDown: ({ sel }) => set({ layer: Math.max(0, sel.layer - 1) }),
  "[": ({ sel }) => set({ head: Math.max(0, sel.head - 1) }),
  "]": ({ sel, model }) => set({ head: Math.min(model.model.heads - 1, sel.head + 1) }),
  p: () => present(),
  ",": (ctx) => ctx.follow(ctx.stack.text, Math.max(0, ctx.position - 1)),
  ".": (ctx) => ctx.follow(ctx.stack.text, Math.min(ctx.run.tokens(ctx.stack.text).length - 1, ctx.position + 1)),
};

/** What the model's description selects, where the address names nothing but the language. */
const opening = (given) => (location.hash.replace(/^#/, "").split("&").every((part) => !part || part.startsWith("lang=")) ? { ...model.start, view: "whole", lang: given.lang } : {});

async function start() {
  await speak(read(location.hash).lang, nameOf(read(location.hash)));
  try {
    model = await askModel();
  } catch (error) {
    return complain(error);
  }
  const given = read(location.hash);
  linked = given.text !== "";
  const own = model.decoding ?? {};
  const first = offline ? (await askRun({})).answer.request : null;
  const begin = { beam: Math.min(own.beam ?? 4, model.limits?.beam ?? 16), alpha: own.length_penalty ?? 0.6 };
  const text = first ? first.text : model.examples?.[0] ?? "";
  if (!given.text || first) address("replaceState", { ...given, ...(location.hash.includes("beam=") ? {} : begin), ...(first ? {} : opening(given)), text, ...(first ? { pair: first.pair ?? "", target: first.target ?? "" } : {}) });
  subscribe(update);
  addEventListener("popstate", () => restore(text));
  addEventListener("hashchange", () => restore(text));
  onTheme(() => runs.a && draw());
  addEventListener("fullscreenchange", () => document.fullscreenElement || !presenting() || present(false));
  addEventListener("keydown", (event) => event.key === "Escape" && presenting() && present(false)); // where full screen was forbidden
  let width = innerWidth;
  addEventListener("resize", () => {
    const now = presenting() ? -innerWidth : innerWidth;
    if (Math.abs(now - width) < 24) return;
    width = now;
    if (runs.a) draw();
  });
  restore(text);
}

start();
