/** What if: a second run with something changed, beside the first. */

import { scaleOf } from "regard/colors.js";
import { ablate, run as askRun } from "regard/data.js";
import { button, choice, fixed, h, percent, piece, shown, tick } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { matrix } from "regard/matrix.js";
import { maxDelta } from "regard/maths.js";
import { extra, request, set, setExtra, state } from "regard/state.js";
import { t } from "regard/strings.js";
import { bars } from "regard/strip.js";
import { promptLength, receipt, scrolled } from "regard/views/decoding.js";

const parsed = (text, empty) => (text ? JSON.parse(text) : empty);
const differences = () => parsed(state.b, {});
/** The patches of B: its own, or those of A. */
const patches = () => parsed(differences().patch ?? state.patch, []);

/** Gives B these differences; null takes one back. */
function change(changes) {
  const all = Object.fromEntries(Object.entries({ ...differences(), ...changes }).filter(([, value]) => value !== null));
  const any = Object.keys(all).length > 0;
  set({ b: any ? JSON.stringify(all) : "", ab: any ? state.ab : "a" });
}
const setPatches = (list) => change({ patch: JSON.stringify(list) === (state.patch || "[]") ? null : JSON.stringify(list) });
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const addPatches = (...more) => setPatches([...patches().filter((each) => !more.some((other) => same(each, other))), ...more]);

/** Where positions can be switched off. */
function positionSites(model) {
  if (model.model.positions === "none") return [];
  return model.model.positions === "rotary" ? Object.keys(model.stacks).map((name) => `${name}.rotary`) : Object.values(model.embeddings).map((name) => `${name}.positions`);
}
const positionsOff = (model) => positionSites(model).map((site) => ({ site, op: "zero" }));

export async function render(root, ctx) {
  root.replaceChildren(); // A and B are shown together here
  if (ctx.which === "b" && state.ab === "both") return void (root.hidden = true);
  root.style.gridColumn = "1 / -1";
  const map = extra("map");
  const found = map ? await ablate(ctx.a, ...map.split(" ")).catch((error) => ({ error })) : null;
  root.append(list(ctx), h("div", { class: "sets" }, ofText(ctx), ofHead(ctx, found), ofModel(ctx)));
  if (ctx.b) root.append(...outputs(ctx), steps(ctx));
  root.append(await ablation(ctx, map, found), await positions(ctx));
}

/** A patch for people. */
function told(patch, ctx) {
  const [stack, , layer, part] = patch.site.split(".");
  const where = part ? `${t(`stack.${stack}`)} ${layer} ${t(`kind.${part}`)}` : patch.site;
  const token = (text, i) => shown(ctx.a.tokens(text)[i] ?? { display: i });
  if (patch.op === "hide") return t("if.hidden", { token: token(patch.site, patch.position) });
  return `${where}${patch.head === undefined ? "" : ` ${t("head")} ${patch.head}`}: ${t(`if.${patch.op}`)}${patch.op === "force" ? ` ${patch.query} → ${patch.key}` : ""}`;
}

/** What is different in B, each thing removable. */
function list(ctx) {
  const { patch, ...rest } = differences();
  const item = (text, drop) => h("li", {}, text, " ", button("×", drop, { "aria-label": `${t("if.remove")}: ${text}`, "data-key": `drop-${text}` }));
  const items = [...Object.entries(rest).map(([key, value]) => item(`${t(`if.key.${key}`)} ${value}`, () => change({ [key]: null }))), ...patches().map((each) => item(told(each, ctx), () => setPatches(patches().filter((other) => !same(each, other)))))];
  const views = ctx.b ? h("p", { class: "ways" }, button(t("if.both"), () => set({ ab: "both", view: "atlas" }), { "data-key": "both" }), button(t("if.diff"), () => set({ ab: "diff", view: "atlas" }), { "data-key": "diff" }), button(t("dropB"), () => set({ b: "", ab: "a" }), { "data-key": "none" })) : null;
  return h("div", { class: "changes" }, h("b", {}, t("if.changes")), items.length ? h("ul", {}, items) : ` ${t("if.none")}`, views);
}

const group = (title, ...children) => h("fieldset", {}, h("legend", {}, title), children);

/** Puts whole words in another order, special tokens where they are. */
function shuffled(tokens) {
  const words = Object.values(Object.groupBy(tokens.map((token, i) => ({ ...token, i })).filter((token) => !token.special), (token) => token.word));
  for (let i = words.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [words[i], words[j]] = [words[j], words[i]];
  }
  const places = words.flat().map((token) => token.i);
  return tokens.map((token, i) => (token.special ? i : places.shift()));
}

/** Changes of what is read. */
function ofText(ctx) {
  const { model, a, sel } = ctx;
  const text = "source" in model.embeddings ? "source" : "text";
  const tokens = a.tokens(text).slice(0, text === "text" && model.task === "write" ? promptLength(a) : undefined);
  const input = h("input", { value: differences().text ?? state.text, dir: "auto", "data-key": "if-text", "aria-label": t("if.text") });
  const names = tokens.map((token, i) => [i, `${i} ${shown(token)}`]);
  const [i, j] = [Number(extra("i", String(text === "source" ? sel.q : Math.min(sel.t, tokens.length - 1)))), Number(extra("j", "1"))];
  const swapped = tokens.map((_, n) => (n === i ? j : n === j ? i : n)).join();
  const off = positionsOff(model);
  const isOff = off.length > 0 && off.every((each) => patches().some((other) => same(each, other)));
  return group(t("if.input"), h("form", { onsubmit: (event) => { event.preventDefault(); change({ text: input.value === state.text ? null : input.value, order: null }); } }, input, h("button", { "data-key": "if-run" }, t("if.run"))),
    h("div", {}, choice(t("dec.token"), names, i, (value) => setExtra({ i: value })), button(t("if.hide"), () => addPatches({ site: text, op: "hide", position: i }), { "data-key": "if-hide" })),
    model.task === "write" ? null : h("div", {}, choice(t("if.with"), names, j, (value) => setExtra({ j: value })), button(t("if.swap"), () => change({ order: swapped }), { "data-key": "if-swap" }), button(t("if.shuffle"), () => change({ order: shuffled(tokens).join() }), { "data-key": "if-shuffle" })),
    off.length ? tick(t("if.positionsOff"), isOff, (on) => (on ? addPatches(...off) : setPatches(patches().filter((each) => !off.some((other) => same(each, other)))))) : null);
}

/** Changes of the selected head, and how much it matters. */
function ofHead(ctx, found) {
  const { sel, attention: site, model } = ctx;
  const name = `${t(`stack.${sel.stack}`)} · ${t(`kind.${sel.kind}`)} · ${t("layer")} ${sel.layer} · ${t("head")} ${sel.head}`;
  const keys = ctx.a.tokens(ctx.keys).map((token, i) => [i, `${i} ${shown(token)}`]);
  const key = sel.k < 0 ? 0 : sel.k;
  const effect = found?.heads?.[`${sel.stack}.${sel.kind}`]?.[sel.layer][sel.head][stepIndex(ctx)];
  return group(t("if.head"), h("p", { class: "note" }, name, " ", h("a", { href: "#playhead", onclick: (event) => { event.preventDefault(); document.getElementById("playhead")?.querySelector("select")?.focus(); } }, t("if.choose"))),
    h("div", {}, ["zero", "mean", "uniform"].map((op) => button(t(`if.${op}`), () => addPatches({ site, head: sel.head, op }), { "data-key": `if-${op}` }))),
    h("div", {}, choice(t("if.row", { t: ctx.position }), keys, key, (value) => set({ k: Number(value) })), button(t("if.force"), () => addPatches({ site, head: sel.head, op: "force", query: ctx.position, key }), { "data-key": "if-force" })),
    h("p", { class: "note" }, t("if.leaving"), " ", effect === undefined ? t("if.unmeasured") : t("if.effect", { delta: fixed(effect, 4), t: sel.t })), model.stacks[sel.stack] ? null : "");
}

/** A whole sublayer left out, or another checkpoint. */
function ofModel(ctx) {
  const { model, sel } = ctx;
  const saved = model.checkpoints ?? [];
  return group(t("if.model"), h("div", {}, [sel.kind, "feed_forward"].map((part) => button(t("if.without", { part: `${t(`stack.${sel.stack}`)} ${sel.layer} ${t(`kind.${part}`)}` }), () => addPatches({ site: `${ctx.layer}.${part}`, op: "drop" }), { "data-key": `if-drop-${part}` }))),
    saved.length ? choice(t("if.checkpoint"), [["", "–"], ...saved.map((each) => [each.id, each.id])], differences().checkpoint ?? "", (id) => change({ checkpoint: id || null })) : null);
}

/** Which tokens two texts share in order. */
function common(a, b) {
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) best[i][j] = a[i].id === b[j].id ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const kept = [new Set(), new Set()];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i].id === b[j].id) (kept[0].add(i++), kept[1].add(j++));
    else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
  return kept;
}

const writtenSteps = (run) => run.answer.steps.filter((step) => !run.has("logits") || step.position >= promptLength(run) - 1);

/** Both outputs, what only one of them has marked. */
function outputs(ctx) {
  const sides = [ctx.a, ctx.b].map((run) => (run.answer.labels.length ? run.answer.labels.map((each) => ({ id: 0, display: Object.entries(each.probabilities).map(([label, p]) => `${label} ${percent(p)}`).join(" ") })) : writtenSteps(run).map((step) => step.chosen)));
  const kept = common(...sides);
  return sides.map((tokens, side) => h("p", { class: "chosen" }, h("b", {}, side ? "B " : "A "), tokens.map((token, i) => (kept[side].has(i) ? piece(token) : h(side ? "ins" : "del", {}, piece(token)))), h("span", { class: "note" }, ` Σ log p = ${fixed((side ? ctx.b : ctx.a).answer.log_probability ?? 0, 4)}`)));
}

const stepIndex = (ctx) => Math.max(0, ctx.a.answer.steps.findIndex((step) => step.position === ctx.sel.t));

/** What each token of A becomes less or more probable by, as far as both have written the same. */
function steps(ctx) {
  const { a, b, model } = ctx;
  const [ours, theirs] = [writtenSteps(a), writtenSteps(b)];
  if (!ours.length) return "";
  const all = ours.map((step) => step.chosen.id).join();
  let equal = true;
  const rows = ours.map((step, i) => {
    const other = equal ? theirs[i] : null;
    const p = other && (other.chosen.id === step.chosen.id ? other : other.top.find((each) => each.id === step.chosen.id))?.log_probability;
    if (model.task !== "fill" && other?.chosen.id !== step.chosen.id) equal = false;
    const delta = p === undefined || p === null ? null : p - step.log_probability;
    return h("tr", { class: step.position === ctx.sel.t ? "followed" : "" }, h("th", {}, button(String(step.position), () => ctx.set({ t: step.position }), { "data-key": `if-step-${step.position}` })), h("td", { class: "left" }, piece(step.chosen)), h("td", {}, fixed(step.log_probability, 4)), h("td", {}, delta === null ? "–" : fixed(p, 4)), h("td", { class: delta < 0 ? "k" : "" }, delta === null ? "–" : fixed(delta, 4)), h("td", { class: "left" }, other ? [piece(other.top[0]), ` ${percent(other.top[0].probability)}`] : "–"));
  });
  const forces = model.task !== "fill" ? tick(t("if.forced"), differences().prefix === all, (on) => change({ prefix: on ? all : null, target: on ? "" : null })) : null;
  return figure(t("if.steps"), [forces, scrolled(t("if.steps"), ["t", t("if.tokenA"), "log p A", "log p B", "B − A", t("if.firstB")], rows)], { name: "steps", note: t("if.stepsNote") });
}

/** The effect of leaving out each head or sublayer at the followed step. */
async function ablation(ctx, map, found) {
  const buttons = ["heads zero", "heads mean", "sublayers zero", "sublayers mean"].map((each) => button(t(`if.map.${each.replace(" ", ".")}`), () => setExtra({ map: each }), { "aria-pressed": each === map, "data-key": `map ${each}` }));
  const at = stepIndex(ctx);
  const step = ctx.a.answer.steps[at];
  const title = t("if.map", { t: step?.position ?? 0, token: step ? shown(step.chosen) : "" });
  if (!found || found.error) return figure(title, [h("div", { class: "ways" }, buttons), found ? h("p", { class: "error" }, found.error.offline ? t("offlineMissing") : found.error.message) : null], { name: "ablation", note: t("if.mapNote") });
  const op = map.split(" ")[1];
  const body = found.heads ? found.kinds.map((kind) => {
    const cells = found.heads[kind];
    const [stack, part] = kind.split(".");
    const mark = ctx.sel.stack === stack && ctx.sel.kind === part ? { row: ctx.sel.layer, column: ctx.sel.head } : {};
    const numbers = (size) => Array.from({ length: size }, (_, i) => String(i));
    const scale = scaleOf(found.kinds.flatMap((each) => found.heads[each].flat().map((row) => row[at])), true);
    return h("div", {}, h("div", { class: "note" }, `${t(`stack.${stack}`)} · ${t(`kind.${part}`)}`), matrix({ rows: cells.length, columns: cells[0].length, at: (i, j) => cells[i][j][at], label: `${title} ${kind}`, rowLabels: numbers(cells.length), columnLabels: numbers(cells[0].length), rowTitle: t("layer"), columnTitle: t("head"), scale, mark, cell: Math.max(24, Math.min(46, 400 / cells[0].length)), tell: (i, j) => (found.top[kind][i][j][at] ? `→ ${shown({ display: found.top[kind][i][j][at] })}` : ""), onpick: (layer, head) => { const site = `${stack}.layers.${layer}.${part}`; set({ stack, kind: part, layer, head, b: JSON.stringify({ ...differences(), patch: JSON.stringify([...parsed(state.patch, []), { site, head, op }]) }) }); } }));
  }) : bars(Object.values(found.sublayers).flat().map((each) => ({ label: told({ site: each.site, op: "drop" }, ctx).split(":")[0], value: each.delta[at], note: each.top[at] ? `→ ${shown({ display: each.top[at] })}` : "", onpick: () => setPatches([...parsed(state.patch, []), { site: each.site, op: "drop" }]) })));
  return figure(title, [h("div", { class: "ways" }, buttons), body], { name: "ablation", note: t("if.mapNote") });
}

/** Words in another order, with and without positions: are the states only exchanged? */
async function positions(ctx) {
  const { model } = ctx;
  const [stack, { text }] = Object.entries(model.stacks)[0];
  const tokens = ctx.a.tokens(text);
  const perm = extra("perm");
  const start = button(t("if.exchange"), () => setExtra({ perm: shuffled(tokens).join() }), { "data-key": "perm" });
  const order = perm.split(",").map(Number);
  if (!perm || order.length !== tokens.length) return figure(t("if.perm"), start, { name: "permutation", note: t("if.permNote") });
  const base = { prefix: "", target: "", order: "", beam: 1, max_tokens: 1, text: state.text };
  const off = JSON.stringify([...parsed(state.patch, []), ...positionsOff(model)]);
  const asked = [{}, { order: perm }, { patch: off }, { patch: off, order: perm }].map((each) => askRun(request(state, JSON.stringify({ ...base, ...each }))));
  const states = await Promise.all((await Promise.all(asked)).map((run) => run.tensor(`${stack}.states`)));
  const far = (a, b) => Math.max(...order.map((from, to) => maxDelta(a.row(from), b.row(to))));
  const delta = far(states[2], states[3]);
  return figure(t("if.perm"), [start, h("p", { class: "chosen" }, order.map((i) => piece(tokens[i]))), h("p", {}, t("if.permOn"), ` max |Δ| = ${fixed(far(states[0], states[1]), 4)}`), receipt(t("if.permOff"), delta), stack === "decoder" ? h("p", { class: "note" }, t("if.causal")) : null], { name: "permutation", note: t("if.permNote"), python: ctx.python(`${stack}.states`) });
}
