/** Lines, dots and bars over two axes, with a point that the pointer or the keyboard walks to. */

import { fmt, h, s } from "regard/dom.js";
import { t } from "regard/strings.js";

/** The width that a drawing may take in its pane. @param {any} ctx @param {number} [most] */
export function room(ctx, most = 560) {
  const wide = innerWidth > 900;
  const all = innerWidth - (wide ? 270 : 40);
  return Math.max(240, Math.min(most, wide && ctx?.b && ctx.sel.ab === "both" ? all / 2 - 24 : all));
}

/** Round numbers between two ends. @param {number} low @param {number} high @param {boolean} log @param {number} [count] */
function ticks(low, high, log, count = 5) {
  if (log) {
    const every = Math.max(1, Math.ceil((high - low) / 6));
    return Array.from({ length: Math.floor(high) - Math.ceil(low) + 1 }, (_, i) => Math.ceil(low) + i).filter((x) => x % every === 0);
  }
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((each) => each * power >= rough) ?? 10) * power;
  return Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, i) => (Math.ceil(low / step) + i) * step);
}

/** Where numbers stand: ends, place of a number and its round numbers. */
function axis(numbers, from, to, { log = false, zero = false } = {}) {
  const size = (x) => (log ? Math.log10(Math.max(x, 1e-9)) : x);
  const all = numbers.filter(Number.isFinite).map(size);
  let low = all.length ? all.reduce((a, b) => Math.min(a, b)) : 0;
  let high = all.length ? all.reduce((a, b) => Math.max(a, b)) : 1;
  if (zero) [low, high] = [Math.min(0, low), Math.max(0, high)];
  if (high - low < 1e-12) [low, high] = [low - 0.5, high + 0.5];
  const place = (x) => from + ((x - low) / (high - low)) * (to - from);
  return { of: (x) => place(size(x)), marks: ticks(low, high, log, Math.max(2, Math.round(Math.abs(to - from) / 80))).map((x) => [place(x), fmt(log ? 10 ** x : Math.abs(x) < 1e-12 ? 0 : x, 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "")]) };
}

const SHAPES = {
  line: (points, tone, each) => [s("path", { d: points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(""), fill: "none", stroke: tone, "stroke-width": each.width ?? 1.6, "stroke-dasharray": each.dash }), each.marks ? SHAPES.dot(points, tone, { size: 2.5 }) : null],
  dot: (points, tone, each) => points.map(([x, y]) => s("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: each.size ?? 3, fill: each.hollow ? "none" : tone, stroke: each.hollow ? tone : "none", "stroke-width": 2, opacity: each.faint ? 0.45 : 1 })),
  bar: (points, tone, _, bottom, wide) => points.map(([x, y]) => s("rect", { x: x - wide / 2, y: Math.min(y, bottom), width: Math.max(1, wide - 1), height: Math.abs(bottom - y), fill: tone })),
};

/** Names beside points, where they do not lie on one another. */
function names(series, points, tone, taken, width) {
  return points.map(([x, y], i) => {
    const text = [...(series.names?.[i] ?? "")].slice(0, 16).join("");
    const long = text.length * 6.7;
    const spots = [[x + 6, y + 4], [x - long - 6, y + 4], [x - long / 2, y - 7], [x - long / 2, y + 15]];
    const spot = spots.find(([a, b]) => a > 0 && a + long < width && !taken.some(([c, d, e]) => a < c + e && c < a + long && Math.abs(b - d) < 11));
    if (!text || !spot) return null;
    taken.push([...spot, long]);
    return s("text", { x: spot[0], y: spot[1], fill: tone, class: "number" }, text);
  });
}

/**
 * A plot: {label, series: [{name, points: [[x, y]], kind: "line" | "dot" | "bar", tone, dash, names, named}], x: {title, log}, y: {title, log, zero}, width, height,
 * onpick(series, i), onrange(series x points inside), tell(series, i)}.
 */
export function plot(p) {
  const [width, height, left, bottom] = [p.width ?? 560, p.height ?? 240, 52, (p.height ?? 240) - 36];
  const all = p.series.flatMap((each) => each.points);
  const bars = p.series.find((each) => each.kind === "bar");
  const wide = bars ? (width - left - 24) / bars.points.length : 0;
  const x = axis(all.map((each) => each[0]), left + 8 + wide / 2, width - 12 - wide / 2, p.x);
  const y = axis(all.map((each) => each[1]), bottom - 6, 12, p.y);
  const places = p.series.map((each) => each.points.map((point) => [x.of(point[0]), y.of(point[1])]));
  const tone = (each) => each.tone ?? "var(--accent)";
  const text = (value, props) => s("text", { class: "number", fill: "var(--soft)", ...props }, value);
  const frame = [
    x.marks.map(([at, value]) => [s("line", { x1: at, x2: at, y1: 6, y2: bottom, stroke: "var(--line)", "stroke-width": 0.6 }), text(value, { x: at, y: bottom + 14, "text-anchor": "middle" })]),
    y.marks.map(([at, value]) => [s("line", { x1: left, x2: width - 4, y1: at, y2: at, stroke: "var(--line)", "stroke-width": 0.6 }), text(value, { x: left - 4, y: at + 4, "text-anchor": "end" })]),
    text(p.x?.title ?? "", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }),
    text(p.y?.title ?? "", { transform: `translate(10 ${bottom / 2}) rotate(-90)`, "text-anchor": "middle" }),
  ];
  const taken = [];
  const drawn = p.series.map((each, i) => SHAPES[each.kind ?? "line"](places[i], tone(each), each, y.of(0), wide));
  const named = p.series.map((each, i) => (each.named ? names(each, places[i], tone(each), taken, width) : null));
  const ring = s("circle", { r: 6, fill: "none", stroke: "var(--gold)", "stroke-width": 2, visibility: "hidden" });
  const span = s("rect", { fill: "var(--light)", stroke: "var(--gold)", visibility: "hidden" });
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application", "aria-roledescription": "plot", "aria-label": p.label, "data-key": `plot-${p.label}` }, frame, drawn, named, span, ring);
  const readout = h("output", { class: "readout", "aria-live": "polite" });
  walkable(p, svg, places, ring, readout);
  if (p.onrange) selectable(p, svg, places, span);
  const key = p.series.filter((each) => each.name && p.series.length > 1).map((each) => h("span", { class: "legend" }, s("svg", { width: 22, height: 10, "aria-hidden": "true" }, each.kind === "dot" ? s("circle", { cx: 11, cy: 5, r: 4, fill: each.hollow ? "none" : tone(each), stroke: tone(each) }) : s("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: tone(each), "stroke-width": 2, "stroke-dasharray": each.dash })), each.name));
  const box = h("div", { class: "matrix plot" }, h("div", { class: "scroll" }, svg), h("div", { class: "under" }, key, readout));
  box.table = () => list(p);
  return box;
}

const said = (p, k, i) => p.tell?.(k, i) ?? `${[p.series[k].name, p.series[k].names?.[i]].filter(Boolean).join(" ")} ${p.x?.title ?? "x"} ${fmt(p.series[k].points[i][0], 4)}, ${p.y?.title ?? "y"} ${fmt(p.series[k].points[i][1], 4)}`;

/** The nearest point under the pointer, and arrow keys from point to point. */
function walkable(p, svg, places, ring, readout) {
  let here = [0, -1];
  const show = (k, i) => {
    here = [k, i];
    const place = places[k]?.[i];
    ring.setAttribute("visibility", place ? "visible" : "hidden");
    if (!place) return;
    ring.setAttribute("cx", place[0]);
    ring.setAttribute("cy", place[1]);
    readout.textContent = said(p, k, i);
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = 900;
    places.forEach((points, k) => points.forEach((point, i) => {
      const far = (point[0] - x) ** 2 + (p.series[k].kind === "bar" ? 0 : (point[1] - y) ** 2);
      if (far < best) [best, here] = [far, [k, i]];
    }));
    show(...(best < 900 ? here : [0, -1]));
  });
  svg.addEventListener("click", () => here[1] >= 0 && p.onpick?.(...here));
  svg.addEventListener("keydown", (event) => {
    const [k, i] = here;
    const filled = p.series.map((_, n) => n).filter((n) => places[n].length);
    const other = filled[(filled.indexOf(k) + (event.key === "ArrowUp" ? 1 : filled.length - 1)) % filled.length] ?? 0;
    const most = (places[k]?.length ?? 1) - 1;
    if (event.key === "ArrowRight") show(k, Math.min(most, i + 1));
    else if (event.key === "ArrowLeft") show(k, Math.max(0, i - 1));
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") show(other, Math.max(0, Math.min(i, places[other].length - 1)));
    else if ((event.key === "Enter" || event.key === " ") && i >= 0) p.onpick?.(k, i);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** A rectangle drawn with mouse or pen: the points within. */
function selectable(p, svg, places, span) {
  let from = null;
  const at = (event) => [event.clientX - svg.getBoundingClientRect().left, event.clientY - svg.getBoundingClientRect().top];
  const edges = (event) => [0, 1].map((i) => [from[i], at(event)[i]].sort((a, b) => a - b));
  svg.addEventListener("pointerdown", (event) => event.pointerType !== "touch" && (from = at(event)));
  svg.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons) return;
    const [[x, x2], [y, y2]] = edges(event);
    if (x2 - x + y2 - y < 8) return;
    for (const [name, value] of Object.entries({ x, y, width: x2 - x, height: y2 - y, visibility: "visible" })) span.setAttribute(name, value);
  });
  svg.addEventListener("pointerup", (event) => {
    if (!from) return;
    const [[x, x2], [y, y2]] = edges(event);
    from = null;
    span.setAttribute("visibility", "hidden");
    if (x2 - x + y2 - y < 8) return;
    event.preventDefault();
    svg.addEventListener("click", (click) => click.stopImmediatePropagation(), { capture: true, once: true });
    p.onrange(places.flatMap((points, k) => points.flatMap(([a, b], i) => (a >= x && a <= x2 && b >= y && b <= y2 ? [[k, i]] : []))));
  });
}

/** The same numbers as a table. */
function list(p) {
  const rows = p.series.flatMap((each) => each.points.map((point, i) => [each.name ?? "", each.names?.[i] ?? "", ...point.map((value) => fmt(value, 4))]));
  const cells = (row) => h("tr", {}, row.map((value) => h("td", {}, value)));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": p.label }, h("table", {}, h("caption", {}, p.label, rows.length > 500 ? ` (${t("firstRows", { n: 500, of: rows.length })})` : ""), h("thead", {}, h("tr", {}, ["", "", p.x?.title ?? "x", p.y?.title ?? "y"].map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, rows.slice(0, 500).map(cells))));
}
