/** Shows one attention head: its numbers at every stage, its lines, and a second head beside it. */

import { COLOURINGS, scaleOf, scalesOfRows } from "regard/color-scales.js";
import { button, enlarged, fixed, h, s, shown } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { matrix } from "regard/matrix-heatmap.js";
import { entropy } from "regard/model-arithmetic.js";
import { presenting } from "regard/page-header-and-tabs.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { chooseColouring, colouring, effects, measuring, single } from "regard/views/attention-head-facts.js";
import { overlay } from "regard/views/heads-in-colours.js";

const STAGES = ["scores", "scaled", "masked", "weights", "value_weighted"];
const LEAST = 0.02;
const MOST_LINES = 1500;
const AROUND = 5;
const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);
const piece = (label) => h("bdi", { class: "piece" }, label);

/** "decoder.cross_attention.1.3" as a place. */
const placeOf = (text) => {
  const [stack, kind, layer, head] = text.split(".");
  const title = () => `${t(`stack.${stack}`)} · ${t(`kind.${kind}`)} · ${t("layer")} ${layer} · ${t("head")} ${head}`;
  return { text, stack, site: `${stack}.${kind}`, kind, layer: Number(layer), head: Number(head), attention: `${stack}.layers.${layer}.${kind}`, title };
};

const titleOfLayer = ({ stack, kind, layer }) => `${t(`stack.${stack}`)} · ${t(`kind.${kind}`)} · ${t("layer")} ${layer}`;

/** "key:source" in words. */
const axis = (name) => name.split(":").map((part, i) => t(i ? `text.${part}` : `att.${part}`)).join(": ");

/** The rows and columns that are zoomed in on: from, to, from, to; else all. */
function zoomed(rows, columns) {
  const [a, b, c, d, ...more] = extra("zoom").split(",").map(Number);
  return !more.length && a >= 0 && a < b && b <= rows && c >= 0 && c < d && d <= columns ? [a, b, c, d] : [0, rows, 0, columns];
}

/** The numbers of a head at a stage, with what its rows and columns are. */
async function numbers(ctx, place, stage) {
  const [tensor, masked] = await Promise.all([ctx.tensor(`${place.attention}.${stage}`), ctx.run.tensor(`${place.attention}.masked`)]);
  const [, ...axes] = tensor.axes;
  return {
    stage,
    shape: tensor.shape.slice(1),
    titles: axes.map(axis),
    labels: axes.map((name) => ctx.labels(name.split(":")[1])),
    signed: tensor.signed || STAGES.indexOf(stage) < 3,
    at: (i, j) => tensor.at(place.head, i, j),
    hatched: (i, j) => STAGES.indexOf(stage) > 1 && masked.at(place.head, i, j) === -Infinity,
  };
}

/** What the colours of a stage may be relative to: only weights are shares of one whole. */
const colourings = ({ stage, signed }) => (stage === "weights" && !signed ? COLOURINGS : COLOURINGS.slice(1));

/** The heat map of what is zoomed in on. */
function heatMap(ctx, found, [r0, r1, c0, c1], label, more) {
  const at = (i, j) => found.at(i + r0, j + c0);
  const all = range(0, r1 - r0).flatMap((i) => range(0, c1 - c0).map((j) => at(i, j)));
  const [[rowTitle, columnTitle], [rows, columns]] = [found.titles, found.labels];
  const how = colouring(found.shape[1], colourings(found));
  const map = matrix({
    rows: r1 - r0, columns: c1 - c0, at, label, rowTitle, columnTitle,
    scale: how === "one" ? { signed: false, high: 1 } : scaleOf(all, found.signed),
    scales: how === "row" ? scalesOfRows(r1 - r0, c1 - c0, at, found.signed) : undefined,
    rowLabels: rows.slice(r0, r1), columnLabels: columns.slice(c0, c1),
    hatched: (i, j) => found.hatched(i + r0, j + c0),
    mark: ctx.position >= r0 && ctx.position < r1 ? { row: ctx.position - r0 } : {},
    ...more,
  });
  return h("div", { class: "mapped" }, h("p", { class: "note axes" }, h("span", { class: "q" }, `↓ ${rowTitle}`), " ", h("span", { class: "k" }, `→ ${columnTitle}`)), map);
}

/** Lets a mouse draw a rectangle on a heat map to zoom in; a click without moving stays a click. */
function dragging(box, [r0, , c0]) {
  const map = box.querySelector(".matrix");
  const grid = box.querySelector(".grid");
  const band = h("div", { class: "band", hidden: true });
  let start = null;
  let moved = false;
  const end = () => ((start = null), (band.hidden = true));
  grid.append(band);
  grid.addEventListener("pointerdown", (event) => {
    moved = false;
    if (event.pointerType !== "touch" && event.button === 0 && map.under(event)[0] >= 0) start = { cell: map.under(event), x: event.clientX, y: event.clientY };
  });
  grid.addEventListener("pointermove", (event) => {
    const [width, height] = start ? [event.clientX - start.x, event.clientY - start.y].map(Math.abs) : [0, 0];
    if (!moved && width + height < 8) return;
    if (!moved) grid.setPointerCapture(event.pointerId);
    if (!start) return;
    moved = true;
    band.hidden = false;
    const frame = grid.getBoundingClientRect();
    Object.assign(band.style, { left: `${Math.min(start.x, event.clientX) - frame.left}px`, top: `${Math.min(start.y, event.clientY) - frame.top}px`, width: `${width}px`, height: `${height}px` });
  });
  grid.addEventListener("pointercancel", end);
  grid.addEventListener("pointerup", (event) => {
    const [row, column] = map.under(event);
    const span = (a, b, first) => [first + Math.min(a, b), first + Math.max(a, b) + 1];
    if (start && moved && row >= 0) setExtra({ zoom: [...span(start.cell[0], row, r0), ...span(start.cell[1], column, c0)].join(",") });
    end();
  });
  grid.addEventListener("click", (event) => moved && event.stopPropagation(), true);
  return box;
}

/** Lines from queries to keys, as thick as their weight; those of the followed query are golden. */
function lines(ctx, found, [r0, r1, c0, c1]) {
  const [rows, columns] = [range(r0, r1), range(c0, c1)];
  const cut = (text) => ([...text].length > 15 ? [...text].slice(0, 14).join("") + "…" : text);
  const names = [rows.map((i) => cut(found.labels[0][i])), columns.map((j) => cut(found.labels[1][j]))];
  const [left, right] = names.map((labels, side) => 12 + 7.4 * enlarged() * Math.max(...[...labels, found.titles[side]].map((each) => [...each].length)));
  const most = Math.max(rows.length, columns.length);
  const step = enlarged() * Math.max(13, Math.min(22, 640 / most));
  const gap = innerWidth < 500 ? 60 : 150;
  const [width, height] = [left + gap + right, 34 + step * most];
  const y = (n) => 34 + n * step;
  const all = rows.flatMap((i, a) => columns.map((j, b) => ({ i, j, a, b, weight: found.at(i, j), size: Math.abs(found.at(i, j)) }))).filter((each) => each.size >= LEAST);
  const drawn = all.sort((p, q) => q.size - p.size).slice(0, MOST_LINES).reverse();
  const paths = drawn.map(({ i, j, a, b, weight, size }) => {
    const followed = i === ctx.position;
    const curve = `M${left} ${y(a) - 4} C${left + gap / 2} ${y(a) - 4} ${left + gap / 2} ${y(b) - 4} ${left + gap} ${y(b) - 4}`;
    return s("path", { d: curve, fill: "none", stroke: followed ? "var(--gold)" : "var(--q)", "stroke-width": (0.6 + 4 * size).toFixed(2), opacity: Math.min(1, (followed ? 0.35 : 0.12) + 0.8 * size).toFixed(2), "stroke-dasharray": weight < 0 ? "4 3" : null, "data-side": `${i} ${j}` }, s("title", {}, `${found.labels[0][i]} → ${found.labels[1][j]}: ${fixed(weight, 3)}`));
  });
  const only = (side, place) => paths.forEach((path) => (path.style.display = side >= 0 && path.dataset.side.split(" ")[side] !== String(place) ? "none" : ""));
  const text = (side, n, label, more) => s("text", { x: side ? left + gap + 5 : left - 5, y: y(n), "text-anchor": side ? "start" : "end", class: "token", ...more }, label);
  const token = (side, place, n) => {
    const gold = !side && place === ctx.position;
    return text(side, n, names[side][n], { class: side ? "token" : "token pick", fill: gold ? "var(--gold)" : "var(--ink)", "font-weight": gold ? 700 : 400, onpointerenter: () => only(side, place), onpointerleave: () => only(-1, 0), onclick: () => side || ctx.follow(ctx.stack.text, place) });
  };
  const note = t("att.lines", { n: drawn.length, of: rows.length * columns.length, least: LEAST });
  const titles = ["q", "k"].map((role, side) => text(side, -1, found.titles[side], { fill: `var(--${role})` }));
  const picture = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${found.titles.join(" → ")}: ${note}` }, paths, titles, rows.map((i, n) => token(0, i, n)), columns.map((j, n) => token(1, j, n)));
  return { width, drawing: h("div", { class: "lines", style: { maxWidth: `${Math.ceil(width)}px` } }, h("div", { class: "scroll" }, picture), h("p", { class: "note" }, note)) };
}

/** The followed row in words: where it looks, that it sums to 1, how spread it is. */
function facts(ctx, { at, shape, labels, signed, hatched }) {
  const row = range(0, shape[1]).map((j) => at(ctx.position, j));
  const best = range(0, row.length).sort((a, b) => Math.abs(row[b]) - Math.abs(row[a])).slice(0, 3);
  const sum = row.reduce((a, b) => a + b, 0);
  const open = row.filter((_, j) => !hatched(ctx.position, j)).length;
  const spread = signed ? "" : ` · ${t("att.entropy")} ${fixed(entropy(row), 3)} (${t("att.atMost")} ${fixed(Math.log(open), 3)})`;
  const near = (place, size) => [Math.max(0, place - AROUND), Math.min(size, place + AROUND + 1)];
  const zoom = [...near(ctx.position, shape[0]), ...near(best[0], shape[1])].join(",");
  const all = String(zoomed(...shape)) === `0,${shape[0]},0,${shape[1]}`;
  return h("div", { class: "facts" }, piece(labels[0][ctx.position]), ` ${t(signed ? "att.changesMost" : "att.looksMost")} `, best.flatMap((j, n) => [n ? ", " : "", piece(labels[1][j]), ` ${fixed(row[j], 3)}`]), ` · ∑ = ${fixed(sum, 3)}${spread} `, button(t("att.zoom"), () => setExtra({ zoom }), { "data-key": "zoom" }), " ", all ? null : button(t("att.unzoom"), () => setExtra({ zoom: "" }), { "data-key": "unzoom" }));
}

/** Shows what the output loses without this head; for two runs, both losses, and their difference where the answers are equal. */
function effectLine(ctx, place) {
  const line = h("p", { class: "facts effect" });
  const say = ({ name, where, value, becomes }, side) => [side && h("b", {}, `${t(`side.${side}`)}: `), piece(name), `${where} `, h("b", {}, fixed(value, 2)), becomes && [`, ${t("att.becomes")} `, piece(shown({ display: becomes }))], " · "];
  const show = () => {
    const found = effects(ctx, place, place.layer, place.head);
    if (!found) return;
    const more = found.length > 1 ? single(found) : null;
    const parts = found.flatMap((each, n) => say(each, found.length > 1 ? "ab"[n] : ""));
    parts.push(more === null ? "" : [h("b", {}, `${t("side.diff")}: `), fixed(more, 2)]);
    line.replaceChildren(h("span", {}, t("att.without"), " ", more === null ? parts.slice(0, -2) : parts));
  };
  const control = measuring(ctx, show);
  show();
  return [line, control];
}

/** Shows the pinned head, and the difference of the selected one from it. */
async function compared(ctx, pinned, place, found, zoom) {
  const other = await numbers(ctx, pinned, found.stage);
  const same = String(other.shape) === String(found.shape) && String(other.titles) === String(found.titles);
  const room = Math.min(560, (innerWidth - (innerWidth > 900 ? 290 : 48)) / (innerWidth > 1150 ? 2 : 1));
  const whole = same ? zoom : [0, other.shape[0], 0, other.shape[1]];
  const beside = figure(`${t("att.pinned")}: ${pinned.title()}`, heatMap(ctx, other, whole, pinned.title(), { room }), { name: pinned.text, python: ctx.python(`${pinned.attention}.${found.stage}`, `[${pinned.head}]`) });
  if (!same) return [beside, h("p", { class: "note" }, t("att.notSame"))];
  const at = (i, j) => (found.at(i, j) === other.at(i, j) ? 0 : found.at(i, j) - other.at(i, j));
  return [beside, figure(t("att.difference"), heatMap(ctx, { ...found, at, signed: true }, zoom, t("att.difference"), { room }), { name: "difference" })];
}

export async function render(root, ctx) {
  const { sel, model } = ctx;
  const stage = STAGES.includes(sel.stage) ? sel.stage : "weights";
  const place = placeOf(`${sel.stack}.${sel.kind}.${sel.layer}.${sel.head}`);
  const pinned = placeOf(extra("pin"));
  const stack = model.stacks[pinned.stack];
  const known = stack?.kinds.includes(pinned.kind) && pinned.layer < stack.layers && pinned.head < model.model.heads;
  const [found, weights] = await Promise.all([numbers(ctx, place, stage), numbers(ctx, place, "weights")]);
  const zoom = zoomed(...found.shape);
  const onpick = (i, j) => ctx.go("microscope", { cell: `${place.attention}.${stage === "value_weighted" ? "weights" : stage}:${sel.head},${i + zoom[0]},${j + zoom[2]}` });
  const { width, drawing } = lines(ctx, weights, zoom);
  const pane = (innerWidth - (innerWidth > 900 && !presenting() ? 264 : 48)) / (ctx.b && sel.ab === "both" && innerWidth > 900 ? 2 : 1);
  const beside = pane - width - 24 >= Math.min(420, 150 + 3 * found.shape[1]);
  const room = Math.min(1000, beside ? pane - width - 24 : pane);
  const comparison = known && pinned.text !== place.text ? await compared(ctx, pinned, place, found, zoom) : [];
  root.append(
    h("div", { class: "selects stages", role: "group", "aria-label": t("att.stages") }, STAGES.map((each, i) => [i ? "→" : "", button(t(`att.stage.${each}`), () => ctx.set({ stage: each }), { "aria-pressed": each === stage, "data-key": `stage-${each}` })])),
    h("p", { class: "note" }, ctx.which === "diff" ? t("side.diff") : t(`att.about.${stage}`)),
    facts(ctx, weights),
    ...effectLine(ctx, place),
    h("div", { class: "selects" }, chooseColouring(colouring(found.shape[1], colourings(found)), colourings(found))),
    figure(place.title(), h("div", { class: `mapandlines ${beside ? "two" : ""}` }, dragging(heatMap(ctx, found, zoom, place.title(), { onpick, room }), zoom), drawing), { name: place.text, python: ctx.python(`${place.attention}.${stage}`, `[${sel.head}]`), note: t("att.pick") }),
    ...overlay(ctx, { title: titleOfLayer(place), labels: weights.labels, titles: weights.titles, weights: await ctx.tensor(`${place.attention}.weights`) }),
    h("p", {}, button(t("att.pin"), () => setExtra({ pin: place.text }), { "data-key": "pin", "aria-pressed": pinned.text === place.text }), " ", known ? button(t("att.unpin"), () => setExtra({ pin: "" }), { "data-key": "unpin" }) : null),
    h("div", { class: "pair" }, comparison),
  );
}
