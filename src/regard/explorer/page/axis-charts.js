/** Draws lines, dots and bars over two axes, with a point that follows the pointer or the arrow keys. */

import { choice, fmt, h, s } from "regard/dom-elements.js";
import { table } from "regard/matrix-heatmap.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

/** The width that a drawing may take in its pane. */
export function room(ctx, most) {
  const wide = innerWidth > 900;
  const all = innerWidth - (wide ? 270 : 40);
  return Math.max(240, Math.min(most, wide && ctx.b && ctx.sel.ab === "both" ? all / 2 - 24 : all));
}

/** An input, a choice that a view remembers. */
export function field(key, label, value, props) {
  const keep = (event) => setExtra({ [key]: event.target.value.trim() });
  const input = h("input", { "data-key": key, [props.type === "range" ? "oninput" : "onchange"]: keep, ...props });
  input.value = String(value); // after its range
  return h("label", { class: "choice" }, h("span", {}, label), input);
}
export const pick = (key, label, options, value) => choice(label, options, value, (chosen) => setExtra({ [key]: chosen }));

/** The text that is looked at, the followed place in it, its stack and a choice of another. */
export function sideOf({ model, sel, stack }) {
  const sides = Object.keys(model.embeddings);
  const side = sides.includes(extra("side")) ? extra("side") : stack.text;
  return {
    side, here: side === "source" ? sel.q : sel.t, stack: Object.keys(model.stacks).find((name) => model.stacks[name].text === side),
    choice: sides.length > 1 ? pick("side", t("side"), sides.map((each) => [each, t(`text.${each}`)]), side) : null,
  };
}

/** Places of numbers between two pixels, and round numbers among them. */
function axis(numbers, from, to, count, how) {
  const { log, zero } = how ?? { log: false, zero: false };
  const size = (x) => (log ? Math.log10(x) : x);
  const all = numbers.map(size).filter(Number.isFinite);
  let [low, high] = [Math.min, Math.max].map((pickOf) => all.reduce((a, b) => pickOf(a, b), zero ? 0 : all[0] ?? 0));
  if (high - low < 1e-12) [low, high] = [low - 0.5, high + 0.5];
  const power = 10 ** Math.floor(Math.log10((high - low) / count));
  const step = log ? 1 : ([1, 2, 5].find((each) => each * power * count >= high - low) ?? 10) * power;
  const place = (x) => from + ((x - low) / (high - low)) * (to - from);
  const marks = Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, i) => (Math.ceil(low / step) + i) * step);
  return { of: (x) => place(size(x)), marks: marks.map((x) => [place(x), String(+(log ? 10 ** x : x).toPrecision(6)).replace("-", "−")]) };
}

/** A name beside a point, where no other lies. */
function name({ px, py, series, i }, taken, width) {
  const text = [...(series.names?.[i] ?? "")].slice(0, 16).join("");
  const long = text.length * 6.7;
  const free = (x, y) => x > 0 && x + long < width && !taken.some(([left, top, wide]) => x < left + wide && left < x + long && Math.abs(y - top) < 11);
  const spot = [[px + 6, py + 4], [px - long - 6, py + 4], [px - long / 2, py - 7], [px - long / 2, py + 15]].find(([x, y]) => free(x, y));
  if (!text || !spot) return null;
  taken.push([...spot, long]);
  return label(text, ...spot, { fill: series.tone, "text-anchor": "start" });
}

const label = (text, x, y, props) => s("text", { x, y, class: "number", fill: "var(--soft)", "text-anchor": "middle", ...props }, text);

/**
 * A plot of series {name, points: [[x, y]], kind: "line" | "dot" | "bar", tone, dash, marks, hollow, faint, size, names, named: names are printed};
 * x, y: {title, log, zero}; onpick(dot), onrange(dots) with dots {series, i}.
 */
export function plot(p) {
  const [width, height, left, bottom] = [p.width, p.height ?? 220, 50, (p.height ?? 220) - 36];
  const dots = p.series.flatMap((series) => series.points.map(([x, y], i) => ({ series, i, x, y })));
  const wide = p.series[0].kind === "bar" ? (width - left - 20) / dots.length : 0;
  const x = axis(dots.map((dot) => dot.x), left + 8 + wide / 2, width - 12 - wide / 2, width / 90, p.x);
  const y = axis(dots.map((dot) => dot.y), bottom - 6, 12, height / 45, p.y);
  for (const dot of dots) [dot.px, dot.py] = [x.of(dot.x), y.of(dot.y)];
  const circle = ({ px, py, series: { size = 2.5, hollow, tone, faint } }) => s(
    "circle", { cx: px, cy: py, r: size, fill: hollow ? "none" : tone, stroke: hollow ? tone : "none", "stroke-width": 2, opacity: faint ? 0.45 : 1 },
  );
  const shapes = (series) => {
    series.tone ??= "var(--accent)";
    const own = dots.filter((dot) => dot.series === series);
    if (series.kind === "bar") return own.map(({ px, py }) => s(
      "rect", { x: px - wide / 2, y: py, width: Math.max(1, wide - 1), height: y.of(0) - py, fill: series.tone },
    ));
    return [
      series.kind === "dot" ? null : s(
        "path",
        { d: "M" + own.map(({ px, py }) => `${px} ${py}`).join("L"), fill: "none", stroke: series.tone, "stroke-width": 1.6, "stroke-dasharray": series.dash },
      ),
      series.kind === "dot" || series.marks ? own.map(circle) : null,
    ];
  };
  const rule = (props) => s("line", { stroke: "var(--line)", "stroke-width": 0.6, ...props });
  const ring = s("circle", { r: 6, fill: "none", stroke: "var(--gold)", "stroke-width": 2, visibility: "hidden" });
  const span = s("rect", { fill: "var(--light)", stroke: "var(--gold)", visibility: "hidden" });
  const taken = [];
  const svg = s(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application", "aria-label": p.label, "data-key": `plot-${p.label}` },
    x.marks.map(([at, text]) => [rule({ x1: at, x2: at, y1: 6, y2: bottom }), label(text, at, bottom + 14)]),
    y.marks.map(([at, text]) => [rule({ x1: left, x2: width - 4, y1: at, y2: at }), label(text, left - 4, at + 4, { "text-anchor": "end" })]),
    label(p.x?.title ?? "", (left + width) / 2, height - 6),
    label(p.y?.title ?? "", 0, 0, { transform: `translate(10 ${bottom / 2}) rotate(-90)` }),
    p.series.map(shapes),
    dots.map((dot) => (dot.series.named ? name(dot, taken, width) : null)),
    span,
    ring,
  );
  const readout = h("output", { class: "readout", "aria-live": "polite" });
  walk(p, svg, dots, ring, span, readout);
  const key = p.series.length > 1 ? p.series.map(({ name, tone, dash, kind, hollow }) => h(
    "span", { class: "legend" },
    s(
      "svg", { width: 22, height: 10, "aria-hidden": "true" },
      kind === "dot" ? s("circle", { cx: 11, cy: 5, r: 4, fill: hollow ? "none" : tone, stroke: tone }) : rule({
        x2: 22, y1: 5, y2: 5, stroke: tone, "stroke-width": 2, "stroke-dasharray": dash,
      }),
    ),
    name,
  )) : null;
  const box = h("div", { class: "matrix plot" }, h("div", { class: "scroll" }, svg), h("div", { class: "under" }, key, readout));
  box.table = () => table({
    rows: dots.length, columns: 2, at: (i, j) => (j ? dots[i].y : dots[i].x), label: p.label,
    rowLabels: dots.map(({ series, i }) => [series.name, series.names?.[i]].filter(Boolean).join(" ") || String(i)),
    columnLabels: [p.x, p.y].map((each, i) => each?.title ?? "xy"[i]), digits: 4,
  });
  return box;
}

/** The point where the keyboard was, by the names of plots. */
const places = new Map();

/** The nearest point under the pointer, arrow keys from point to point, and a rectangle drawn with mouse or pen. */
function walk(p, svg, dots, ring, span, readout) {
  let here = places.get(p.label) ?? -1;
  let from = [];
  const put = (shape, props) => Object.entries(props).forEach(([key, value]) => shape.setAttribute(key, value));
  const show = (i) => {
    here = i;
    places.set(p.label, i);
    const dot = dots[i];
    put(ring, dot ? { visibility: "visible", cx: dot.px, cy: dot.py } : { visibility: "hidden" });
    readout.textContent = dot ? [
      dot.series.name, dot.series.names?.[dot.i], `${p.x?.title ?? "x"} ${fmt(dot.x, 4)}, ${p.y?.title ?? "y"} ${fmt(dot.y, 4)}`,
    ].filter(Boolean).join(" · ") : "";
  };
  const at = (event) => { const box = svg.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const edges = (event) => [0, 1].flatMap((i) => [from[i], at(event)[i]].sort((a, b) => a - b));
  svg.addEventListener("pointerdown", (event) => (from = p.onrange && event.pointerType !== "touch" ? at(event) : []));
  svg.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    const far = dots.map((dot) => (dot.px - x) ** 2 + (dot.series.kind === "bar" ? 0 : (dot.py - y) ** 2));
    const best = far.indexOf(Math.min(...far));
    show(far[best] < 900 ? best : -1);
    if (!from.length) return;
    const [left, right, top, bottom] = edges(event);
    put(span, { x: left, y: top, width: right - left, height: bottom - top, visibility: "visible" });
  });
  svg.addEventListener("click", (event) => {
    const [left, right, top, bottom] = from.length ? edges(event) : [0, 0, 0, 0];
    from = [];
    put(span, { visibility: "hidden" });
    if (right - left + bottom - top > 8) p.onrange(dots.filter(({ px, py }) => px >= left && px <= right && py >= top && py <= bottom));
    else if (dots[here]) p.onpick?.(dots[here]);
  });
  svg.addEventListener("focus", () => show(here));
  svg.addEventListener("keydown", (event) => {
    const starts = dots.flatMap((dot, i) => (dot.i ? [] : [i]));
    const moves = {
      ArrowRight: () => Math.min(dots.length - 1, here + 1), ArrowLeft: () => Math.max(0, here - 1), ArrowUp: () => starts.find((i) => i > here) ?? 0,
      ArrowDown: () => starts.findLast((i) => i < here) ?? starts.at(-1),
    };
    if (moves[event.key]) show(moves[event.key]());
    else if ((event.key === "Enter" || event.key === " ") && dots[here]) p.onpick?.(dots[here]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
