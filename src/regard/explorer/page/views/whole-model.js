/**
 * The whole model in one picture that moves: a sentence rises through the encoder, keys and values cross over to the
 * decoder, and the decoder writes token after token, each of which goes back in.
 *
 * Columns are tokens, bars are vectors of the run, and lines are attention of the selected head.
 */

import { color, scaleOf } from "regard/color-scales.js";
import { button, choice, h, percent, piece, s, shown } from "regard/dom-elements.js";
import { t } from "regard/strings.js";

const SPEEDS = { slow: 1600, normal: 800, fast: 300 }; // milliseconds a frame is shown
const BAR = { width: 12, height: 36 };
const STRONG = 0.08; // attention below this share is not drawn

let playing = null; // the timer
const shownFrame = { run: null, frame: 0, speed: "normal" };

/** The tensors of a stack from its embedding to its last layer: [{label, name, layer}]. */
function stages(ctx, stack) {
  const { layers, text } = ctx.model.stacks[stack];
  const embedding = ctx.model.embeddings[text] ?? Object.values(ctx.model.embeddings)[0];
  const first = ["norm", "sum", "tokens"].map((part) => `${embedding}.${part}`).find((name) => ctx.run.has(name));
  const end = ctx.model.model.norm === "pre" ? "sum" : "norm";
  const rows = Array.from({ length: layers }, (_, layer) => ({ label: `${t("layer")} ${layer}`, name: `${stack}.layers.${layer}.feed_forward_residual.${end}`, layer }));
  return [{ label: t("map.embedding"), name: first, layer: -1 }, ...rows].filter((each) => ctx.run.has(each.name));
}

/** A picture for each moment: which stages and columns are shown, what is attended, and what is said about it. */
function framesOf(ctx) {
  const frames = [];
  const names = Object.keys(ctx.model.stacks);
  const two = names.length > 1;
  const first = ctx.model.stacks[names[0]];
  const last = names.at(-1);
  const deepest = (stack) => ctx.model.stacks[stack].layers;
  const steps = ctx.run.answer.steps;
  const reads = two || !ctx.model.stacks.decoder; // an encoder sees its whole text at once
  if (reads) {
    for (let stage = 0; stage <= first.layers; stage++) frames.push({ stack: names[0], stage, say: stage ? t("whole.layer", { n: stage - 1 }) : t("whole.embedding"), source: stage });
    if (two) frames.push({ stack: last, stage: -1, source: first.layers, crossing: true, say: t("whole.cross") });
  }
  if (!ctx.model.stacks.decoder) {
    frames.push({ stack: names[0], stage: first.layers, source: first.layers, labels: true, say: t("whole.answer") });
    return frames;
  }
  const begin = two ? 0 : Math.max(0, (steps.find((each) => !each.given)?.position ?? 0));
  for (const step of steps.filter((each) => each.position >= begin)) {
    const common = { stack: last, source: first.layers, position: step.position, step };
    frames.push({ ...common, stage: deepest(last), say: t(two ? "whole.write" : "whole.continue", { token: shown(ctx.run.tokens(ctx.model.stacks[last].text)[step.position]) }) });
    frames.push({ ...common, stage: deepest(last), chosen: true, say: step.chosen.text === "" || step === steps.at(-1) ? t("whole.end", { token: shown(step.chosen) }) : t("whole.choose", { token: shown(step.chosen) }) });
  }
  return frames;
}

/** A vector as a bar of coloured cells, first number on top. */
function bar(numbers, scale, label) {
  const canvas = h("canvas", { width: 1, height: numbers.length, role: "img", "aria-label": label, style: { width: `${BAR.width}px`, height: `${BAR.height}px` } });
  const pen = canvas.getContext("2d");
  numbers.forEach((number, i) => {
    pen.fillStyle = color(number, scale);
    pen.fillRect(0, i, 1, 1);
  });
  return canvas;
}

/** One stack: a row of tokens at the bottom, and a row of vectors for each stage above it. */
async function stackOf(ctx, stack) {
  const { text } = ctx.model.stacks[stack];
  const tokens = ctx.run.tokens(text);
  const rows = stages(ctx, stack);
  const tensors = await ctx.run.tensors(rows.map((each) => each.name));
  const columns = { style: { gridTemplateColumns: `5.5rem repeat(${tokens.length}, minmax(16px, 1fr))` } };
  const open = (row, column) => openCard(ctx, stack, row.layer, text, column);
  const lines = rows.map((row, stage) => {
    const scale = scaleOf(tensors[stage].data, true);
    const cells = tokens.map((token, column) => h("span", { class: "vector", "data-stage": stage, "data-column": column, title: `${shown(token)}: ${row.label}`, onclick: () => open(row, column) }, bar(tensors[stage].row(column), scale, `${shown(token)}, ${row.label}`)));
    return h("div", { class: "row", "data-stage": stage, ...columns }, button(row.label, () => open(row, ctx.model.stacks[stack].text === "source" ? ctx.sel.q : ctx.sel.t)), cells);
  });
  const inputs = h("div", { class: "row tokens", ...columns }, h("span", { class: "note" }, t(`text.${text}`)), tokens.map((token, column) => h("span", { class: "wholetoken", "data-column": column }, piece(token))));
  return h("section", { class: "wholestack", "data-stack": stack, "aria-label": t(`stack.${stack}`) }, h("h3", {}, t(`stack.${stack}`)), lines.reverse(), inputs);
}

/** Opens the card of the journey for a part of the picture. */
function openCard(ctx, stack, layer, text, column) {
  const two = "target" in ctx.model.embeddings;
  const key = layer < 0 ? "embed" : two && stack === "decoder" ? "cross" : "into";
  const kind = key === "cross" ? "cross_attention" : "self_attention";
  ctx.openCard(key, { stack, kind, layer: Math.max(0, layer), ...(text === "source" ? { q: column } : { t: column }) });
}

/** The candidates of a step as bars, most probable first. */
function candidates(step, chosen) {
  return h("ol", { class: "candidates" }, step.top.slice(0, 4).map((each) => h("li", { class: chosen && each.id === step.chosen.id ? "marked" : "" }, h("span", {}, shown(each)), h("i", { style: { width: `${Math.max(1, 60 * each.probability)}%` } }), h("span", { class: "note" }, percent(each.probability)))));
}

/** Lines from places attended to the place that attends, as wide as the attention weighs. */
function links(picture, from, to, weights) {
  const frame = picture.getBoundingClientRect();
  const middle = (element) => {
    const box = element.getBoundingClientRect();
    return [box.left + box.width / 2 - frame.left, box.top + box.height / 2 - frame.top];
  };
  const [x, y] = middle(to);
  return from.flatMap((element, i) => {
    if (!element || !(weights[i] > STRONG)) return [];
    const [a, b] = middle(element);
    return [s("path", { d: `M${a},${b} C${a},${(b + y) / 2} ${x},${(b + y) / 2} ${x},${y}`, "stroke-width": 1 + 4 * weights[i], opacity: 0.25 + 0.75 * weights[i] })];
  });
}

export async function render(root, ctx) {
  stop();
  const frames = framesOf(ctx);
  const run = ctx.run.answer.run;
  if (shownFrame.run !== run) Object.assign(shownFrame, { run, frame: matchMedia("(prefers-reduced-motion: reduce)").matches ? frames.length - 1 : 0 });
  const names = Object.keys(ctx.model.stacks);
  const stacks = await Promise.all(names.map((name) => stackOf(ctx, name)));
  const attention = new Map(await Promise.all(names.flatMap((name) => ctx.model.stacks[name].kinds.map(async (kind) => {
    const { layers } = ctx.model.stacks[name];
    return [`${name}.${kind}`, await ctx.run.tensors(Array.from({ length: layers }, (_, layer) => `${name}.layers.${layer}.${kind}.weights`))];
  }))));
  const svg = s("svg", { class: "links", "aria-hidden": "true" });
  const output = h("div", { class: "outcome" });
  const picture = h("div", { class: "whole", "data-frames": frames.length }, stacks, svg);
  const say = h("p", { class: "narration", role: "status" });
  const slider = h("input", { type: "range", min: 0, max: frames.length - 1, "aria-label": t("whole.moment"), oninput: (event) => { pause(); show(Number(event.target.value)); } });
  const play = button("", () => (playing ? pause() : resume()), { class: "run", "data-key": "whole-play" });
  const controls = h(
    "div",
    { class: "controls" },
    button("⇤", () => { pause(); show(0); }, { "aria-label": t("whole.first") }),
    button("◀", () => { pause(); show(shownFrame.frame - 1); }, { "aria-label": t("whole.back") }),
    play,
    button("▶", () => { pause(); show(shownFrame.frame + 1); }, { "aria-label": t("whole.forward") }),
    slider,
    choice(t("whole.speed"), Object.keys(SPEEDS).map((each) => [each, t(`whole.${each}`)]), shownFrame.speed, (speed) => { shownFrame.speed = speed; if (playing) resume(); }),
  );
  root.append(controls, say, picture, output);

  const cell = (stack, stage, column) => picture.querySelector(`[data-stack=${stack}] .vector[data-stage="${stage}"][data-column="${column}"]`);

  function show(wanted) {
    const frame = Math.max(0, Math.min(frames.length - 1, wanted));
    const now = frames[frame];
    shownFrame.frame = frame;
    slider.value = frame;
    say.textContent = now.say;
    picture.dataset.frame = frame;
    for (const stack of names) {
      const reads = ctx.model.stacks[stack].text === "source" || !ctx.model.stacks.decoder;
      const columns = reads ? Infinity : (now.position ?? -1);
      const top = reads ? now.source : now.stage;
      for (const each of picture.querySelectorAll(`[data-stack=${stack}] [data-column]`)) {
        const column = Number(each.dataset.column);
        const stage = Number(each.dataset.stage ?? -1);
        each.classList.toggle("on", column <= columns && stage <= top);
        each.classList.toggle("now", now.stack === stack && (reads ? stage === now.stage : column === now.position));
      }
    }
    output.replaceChildren(...(now.step ? [h("p", { class: "note" }, t("whole.next")), candidates(now.step, now.chosen)] : now.labels ? [h("p", {}, ctx.run.answer.text || "")] : []), ...written(now));
    svg.replaceChildren(...lines(now));
  }

  /** The output so far, with the token that goes back in. */
  function written(now) {
    if (!now.step) return [];
    const tokens = ctx.run.tokens(ctx.model.stacks[now.stack].text).slice(0, now.position + 1);
    const chosen = now.chosen && now.step.chosen.text !== "" ? piece(now.step.chosen, { class: "arriving" }) : "";
    return [h("p", { class: "written" }, tokens.filter((each) => !each.special).map((each) => piece(each)), chosen)];
  }

  function lines(now) {
    const { head } = ctx.sel;
    const range = (size) => Array.from({ length: size }, (_, i) => i);
    const size = (stack) => ctx.run.tokens(ctx.model.stacks[stack].text).length;
    if (now.crossing) return links(picture, range(size(names[0])).map((i) => cell(names[0], now.source, i)), picture.querySelector(`[data-stack=${now.stack}] .row[data-stage="1"]`) ?? picture, range(size(names[0])).map(() => 0.5));
    if (now.position === undefined) {
      if (!(now.stage > 0)) return [];
      const weights = attention.get(`${now.stack}.self_attention`)[now.stage - 1];
      return range(size(now.stack)).flatMap((i) => links(picture, range(size(now.stack)).map((k) => cell(now.stack, now.stage - 1, k)), cell(now.stack, now.stage, i), weights.row(head, i)));
    }
    const cross = attention.get(`${now.stack}.cross_attention`);
    const own = attention.get(`${now.stack}.self_attention`);
    return range(ctx.model.stacks[now.stack].layers).flatMap((layer) => {
      const to = cell(now.stack, layer + 1, now.position);
      const inside = links(picture, range(now.position + 1).map((k) => cell(now.stack, layer, k)), to, own[layer].row(head, now.position));
      return cross ? [...inside, ...links(picture, range(size(names[0])).map((k) => cell(names[0], now.source, k)), to, cross[layer].row(head, now.position))] : inside;
    });
  }

  function resume() {
    clearInterval(playing);
    if (shownFrame.frame >= frames.length - 1) show(0);
    playing = setInterval(() => {
      if (!picture.isConnected) return pause();
      show(shownFrame.frame + 1);
      if (shownFrame.frame >= frames.length - 1) pause();
    }, SPEEDS[shownFrame.speed]);
    play.textContent = t("whole.pause");
  }

  function pause() {
    clearInterval(playing);
    playing = null;
    play.textContent = t("whole.play");
  }
  keys[" "] = () => (playing ? pause() : resume());
  keys.ArrowRight = () => { pause(); show(shownFrame.frame + 1); };
  keys.ArrowLeft = () => { pause(); show(shownFrame.frame - 1); };
  pause();
  new ResizeObserver(() => picture.isConnected && show(shownFrame.frame)).observe(picture); // lines need the places of what is drawn
}

function stop() {
  clearInterval(playing);
  playing = null;
}

/** Keys of this view: space plays, the arrows go to the next and the last moment. */
export const keys = {};
