/** One head: its numbers at every stage, its lines, and a second head beside it. */

import { scaleOf } from "regard/colors.js";
import { button, fixed, h, s, shown } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { entropy } from "regard/maths.js";
import { matrix } from "regard/matrix.js";
import { extra, setExtra } from "regard/state.js";
import { t } from "regard/strings.js";
import { effect, measuring } from "regard/views/heads.js";

const STAGES = ["scores", "scaled", "masked", "weights", "value_weighted"];
const LEAST = 0.02;
const MOST_LINES = 1500;
const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i);

/** "decoder.cross_attention.1.3" as a place; the selected head, or the pinned one. */
const placeOf = (text) => {
  const [stack, kind, layer, head] = text.split(".");
  return { stack, kind, layer: Number(layer), head: Number(head), attention: `${stack}.layers.${layer}.${kind}`, text };
};

/** "key:source" in words. */
const axis = (name) => name.split(":").map((part, i) => t(i ? `text.${part}` : `att.${part}`)).join(": ");

/** What is shown of this head: rows and columns from-to, all if nothing is zoomed. */
function zoomed(rows, columns) {
  const given = extra("zoom").split(",").map(Number);
  const inside = given.length === 4 && given.every(Number.isInteger) && given[0] >= 0 && given[2] >= 0 && given[0] < given[1] && given[1] <= rows && given[2] < given[3] && given[3] <= columns;
  return inside ? given : [0, rows, 0, columns];
}

/** The numbers of a head at a stage as a matrix: (i, j) is at(i, j). */
async function numbers(ctx, place, stage) {
  const [tensor, masked] = await Promise.all([ctx.tensor(`${place.attention}.${stage}`), ctx.run.tensor(`${place.attention}.masked`)]);
  const labels = tensor.axes.slice(1).map((name) => ctx.run.tokens(name.split(":")[1]).map(shown));
  const late = STAGES.indexOf(stage) > 1;
  return { at: (i, j) => tensor.at(place.head, i, j), hatched: (i, j) => late && masked.at(place.head, i, j) === -Infinity, labels, titles: tensor.axes.slice(1).map(axis), signed: tensor.signed || (stage === "weights" || stage === "value_weighted" ? false : true), shape: tensor.shape.slice(1), stage };
}

/** The heat map of what is zoomed in on. */
function heatMap(ctx, found, zoom, label, more = {}) {
  const [r0, r1, c0, c1] = zoom;
  const at = (i, j) => found.at(i + r0, j + c0);
  const scale = found.stage === "weights" && !found.signed ? { signed: false, high: 1 } : scaleOf(range(0, r1 - r0).flatMap((i) => range(0, c1 - c0).map((j) => at(i, j))), found.signed);
  const map = matrix({ rows: r1 - r0, columns: c1 - c0, at, scale, label, rowLabels: found.labels[0].slice(r0, r1), columnLabels: found.labels[1].slice(c0, c1), rowTitle: found.titles[0], columnTitle: found.titles[1], hatched: (i, j) => found.hatched(i + r0, j + c0), mark: ctx.position >= r0 && ctx.position < r1 ? { row: ctx.position - r0 } : {}, ...more });
  return h("div", { class: "mapped" }, h("p", { class: "note axes" }, h("span", { class: "q" }, `↓ ${found.titles[0]}`), "  ", h("span", { class: "k" }, `→ ${found.titles[1]}`)), map);
}

/** Lets a mouse draw a rectangle on a heat map to zoom in; a click without moving stays a click. */
function dragging(box, [r0, , c0]) {
  const map = box.querySelector(".matrix");
  const grid = box.querySelector(".grid");
  let start = null;
  let moved = false;
  const band = h("div", { class: "band", hidden: true });
  grid.append(band);
  grid.addEventListener("pointerdown", (event) => {
    moved = false;
    const [row, column] = map.under(event);
    if (event.pointerType !== "touch" && event.button === 0 && row >= 0) start = { row, column, x: event.clientX, y: event.clientY };
  });
  grid.addEventListener("pointermove", (event) => {
    if (!start) return;
    const frame = grid.getBoundingClientRect();
    const [x, y] = [Math.min(start.x, event.clientX), Math.min(start.y, event.clientY)];
    const [width, height] = [Math.abs(start.x - event.clientX), Math.abs(start.y - event.clientY)];
    if (!moved && width + height < 8) return;
    if (!moved) grid.setPointerCapture(event.pointerId);
    moved = true;
    band.hidden = false;
    Object.assign(band.style, { left: `${x - frame.left}px`, top: `${y - frame.top}px`, width: `${width}px`, height: `${height}px` });
  });
  grid.addEventListener("pointercancel", () => ((start = null), (band.hidden = true)));
  grid.addEventListener("pointerup", (event) => {
    const [row, column] = map.under(event);
    if (start && moved && row >= 0) {
      const [top, bottom, left, right] = [Math.min(start.row, row), Math.max(start.row, row) + 1, Math.min(start.column, column), Math.max(start.column, column) + 1];
      setExtra({ zoom: [r0 + top, r0 + bottom, c0 + left, c0 + right].join(",") });
    }
    start = null;
    band.hidden = true;
  });
  grid.addEventListener("click", (event) => moved && event.stopPropagation(), true);
  return box;
}

/** Lines from queries to keys, as thick as their weight. */
function lines(ctx, found, [r0, r1, c0, c1]) {
  const step = 22;
  const [rows, columns] = [range(r0, r1), range(c0, c1)];
  const size = (labels) => 12 + 7.4 * Math.min(15, Math.max(1, ...labels.map((each) => [...each].length)));
  const left = size(rows.map((i) => found.labels[0][i]));
  const width = left + 150 + size(columns.map((j) => found.labels[1][j]));
  const height = 24 + step * Math.max(rows.length, columns.length);
  const y = (n) => 34 + n * step;
  const all = rows.flatMap((i, a) => columns.map((j, b) => ({ i, j, a, b, weight: found.at(i, j) }))).filter((each) => Math.abs(each.weight) >= LEAST);
  const drawn = all.sort((p, q) => Math.abs(q.weight) - Math.abs(p.weight)).slice(0, MOST_LINES).reverse();
  const paths = drawn.map(({ i, j, a, b, weight }) => {
    const followed = i === ctx.position;
    const strength = Math.abs(weight);
    return s("path", { d: `M${left} ${y(a) - 4} C${left + 75} ${y(a) - 4} ${left + 75} ${y(b) - 4} ${left + 150} ${y(b) - 4}`, fill: "none", stroke: followed ? "var(--gold)" : "var(--q)", "stroke-width": (0.6 + 4 * strength).toFixed(2), opacity: Math.min(1, (followed ? 0.35 : 0.12) + 0.8 * strength).toFixed(2), "stroke-dasharray": weight < 0 ? "4 3" : null, "data-q": i, "data-k": j }, s("title", {}, `${found.labels[0][i]} → ${found.labels[1][j]}: ${fixed(weight, 3)}`));
  });
  const only = (side, place) => paths.forEach((path) => (path.style.display = side && path.dataset[side] !== String(place) ? "none" : ""));
  const cut = (text) => ([...text].length > 15 ? [...text].slice(0, 14).join("") + "…" : text);
  const token = (side, place, n) => {
    const mine = side === "q";
    const follow = () => mine && ctx.follow(ctx.stack.text, place);
    const gold = mine && place === ctx.position;
    return s("text", { x: mine ? left - 5 : left + 155, y: y(n), "text-anchor": mine ? "end" : "start", class: `token ${mine ? "pick" : ""}`, fill: gold ? "var(--gold)" : "var(--ink)", "font-weight": gold ? 700 : 400, onpointerenter: () => only(side, place), onpointerleave: () => only("", 0), onclick: follow }, cut(found.labels[mine ? 0 : 1][place]));
  };
  const title = (side, x, anchor) => s("text", { x, y: 13, "text-anchor": anchor, class: "token", fill: `var(--${side})` }, found.titles[side === "q" ? 0 : 1]);
  const picture = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${found.titles.join(" → ")}: ${t("att.lines", { n: drawn.length, of: rows.length * columns.length, least: LEAST })}` }, paths, title("q", left - 5, left > 90 ? "end" : "start"), title("k", left + 155, "start"), rows.map((i, n) => token("q", i, n)), columns.map((j, n) => token("k", j, n)));
  if (left <= 90) picture.querySelector(".token").setAttribute("x", "0");
  return h("div", { class: "lines" }, h("div", { class: "scroll" }, picture), h("p", { class: "note" }, t("att.lines", { n: drawn.length, of: rows.length * columns.length, least: LEAST })));
}

/** The followed row in words: where it looks, that it sums to 1, how spread it is. */
function facts(ctx, weights) {
  const row = range(0, weights.shape[1]).map((j) => weights.at(ctx.position, j));
  const best = range(0, row.length).sort((a, b) => Math.abs(row[b]) - Math.abs(row[a])).slice(0, 3);
  const name = (label) => h("bdi", { class: "piece" }, label);
  const keys = best.flatMap((j, n) => [n ? ", " : "", name(weights.labels[1][j]), ` ${fixed(row[j], 3)}`]);
  const sum = `∑ = ${fixed(row.reduce((a, b) => a + b, 0), 3)}`;
  return h("p", { class: "facts" }, name(weights.labels[0][ctx.position]), ` ${t("att.looksMost")} `, keys, ` · ${sum}`, weights.signed ? "" : ` · ${t("att.entropy")} ${fixed(entropy(row), 3)} (${t("att.atMost")} ${fixed(Math.log(row.length), 3)})`);
}

/** What the output loses without this head. */
function effectLine(ctx, place) {
  const line = h("p", { class: "facts" });
  const show = () => {
    const done = effect(ctx, { site: `${place.stack}.${place.kind}`, stack: place.stack }, place.layer, place.head);
    if (!done) return line.replaceChildren();
    const piece = (token) => h("bdi", { class: "piece" }, shown(token));
    line.replaceChildren(t("att.without"), " ", done.chosen ? piece(done.chosen) : t("att.label"), ": ", h("b", {}, fixed(done.value, 2)), done.becomes ? [` · ${t("att.becomes")} `, piece({ display: done.becomes })][0] : "", done.becomes ? piece({ display: done.becomes }) : "");
  };
  const control = measuring(ctx, show);
  show();
  return [line, control];
}

/** Four numbers that zoom, for those who do not draw rectangles. */
function zoomForm([r0, r1, c0, c1], rows, columns) {
  const full = r0 === 0 && c0 === 0 && r1 === rows && c1 === columns;
  const input = (name, value, max) => h("input", { type: "number", name, value, min: 1, max, required: true, "aria-label": t(`att.${name}`), title: t(`att.${name}`) });
  const form = h("form", { class: "zoom", onsubmit: (event) => {
    event.preventDefault();
    const [a, b, c, d] = ["fromRow", "toRow", "fromColumn", "toColumn"].map((name) => Number(form.elements[name].value));
    setExtra({ zoom: [Math.min(a, b) - 1, Math.max(a, b), Math.min(c, d) - 1, Math.max(c, d)].join(",") });
  } }, t("att.query"), input("fromRow", r0 + 1, rows), "–", input("toRow", r1, rows), t("att.key"), input("fromColumn", c0 + 1, columns), "–", input("toColumn", c1, columns), h("button", {}, t("att.zoom")));
  return h("div", { class: "selects" }, h("details", { class: "note" }, h("summary", {}, t("att.zoomHow")), form), full ? null : button(t("att.unzoom"), () => setExtra({ zoom: "" }), { "data-key": "unzoom" }));
}

/** The pinned head and what the selected one has more. */
async function compared(ctx, pinned, place, found, zoom) {
  const other = await numbers(ctx, pinned, found.stage);
  const same = String(other.shape) === String(found.shape) && String(other.titles) === String(found.titles);
  const title = (each) => `${t(`stack.${each.stack}`)} · ${t(`kind.${each.kind}`)} ${each.layer}.${each.head}`;
  const room = Math.min(560, innerWidth - 48);
  const whole = same ? zoom : [0, other.shape[0], 0, other.shape[1]];
  const shownPin = figure(`${t("att.pinned")}: ${title(pinned)}`, heatMap(ctx, other, whole, title(pinned), { room }), { name: pinned.text, python: ctx.python(`${pinned.attention}.${found.stage}`, `[${pinned.head}]`) });
  if (!same) return [shownPin, h("p", { class: "note" }, t("att.notSame"))];
  const more = (i, j) => (found.at(i, j) === other.at(i, j) ? 0 : found.at(i, j) - other.at(i, j));
  const difference = { ...found, at: more, signed: true };
  return [shownPin, figure(`${title(place)} − ${title(pinned)}`, heatMap(ctx, difference, zoom, t("att.difference"), { room }), { name: "difference" })];
}

export async function render(root, ctx) {
  const { sel, model } = ctx;
  const stage = STAGES.includes(sel.stage) ? sel.stage : "weights";
  const place = placeOf(`${sel.stack}.${sel.kind}.${sel.layer}.${sel.head}`);
  const [found, weights] = await Promise.all([numbers(ctx, place, stage), numbers(ctx, place, "weights")]);
  const zoom = zoomed(...found.shape);
  const pinned = placeOf(extra("pin"));
  const known = model.stacks[pinned.stack]?.kinds.includes(pinned.kind) && pinned.layer < model.stacks[pinned.stack].layers && pinned.head < model.model.heads;
  const traced = stage === "value_weighted" ? "weights" : stage;
  const onpick = (i, j) => ctx.go("microscope", { cell: `${place.attention}.${traced}:${sel.head},${i + zoom[0]},${j + zoom[2]}` });
  const title = `${t(`stack.${sel.stack}`)} · ${t(`kind.${sel.kind}`)} · ${t("layer")} ${sel.layer} · ${t("head")} ${sel.head}`;
  const wide = innerWidth > 1100 && ctx.which !== "diff" && !ctx.b;
  const room = Math.min(820, innerWidth - (innerWidth > 900 ? 290 : 48) - (wide ? 330 : 0));
  const stages = STAGES.map((each, i) => [i ? h("span", { "aria-hidden": "true" }, "→") : null, button(t(`att.stage.${each}`), () => ctx.set({ stage: each }), { "aria-pressed": each === stage, "data-key": `stage-${each}` })]);
  const comparison = known && pinned.text !== place.text ? await compared(ctx, pinned, place, found, zoom) : [];
  root.append(
    h("div", { class: "selects stages", role: "group", "aria-label": t("att.stages") }, stages),
    h("p", { class: "note" }, t(`att.about.${stage}`)),
    figure(title, [dragging(heatMap(ctx, found, zoom, title, { onpick, room }), zoom), lines(ctx, weights, zoom)], { name: place.text, python: ctx.python(`${place.attention}.${stage}`, `[${sel.head}]`), note: t("att.pick") }),
    facts(ctx, weights),
    ...effectLine(ctx, place),
    zoomForm(zoom, ...found.shape),
    h("p", {}, pinned.text === place.text || !known ? button(t("att.pin"), () => setExtra({ pin: place.text }), { "data-key": "pin", "aria-pressed": pinned.text === place.text }) : [button(t("att.pin"), () => setExtra({ pin: place.text }), { "data-key": "pin" }), " ", button(t("att.unpin"), () => setExtra({ pin: "" }), { "data-key": "unpin" })]),
    h("div", { class: "pair" }, comparison),
  );
}
