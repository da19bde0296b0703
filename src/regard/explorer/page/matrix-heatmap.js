/** Draws a matrix as coloured cells on a canvas that the keyboard can explore, and as a table. */

import { color, dark, ink, rgb, scaleOf } from "regard/color-scales.js";
import { enlarged, fixed, h } from "regard/dom-elements.js";
import { t } from "regard/strings.js";

/**
 * @typedef {object} Matrix
 * @property {number} rows @property {number} columns @property {(row: number, column: number) => number} at
 * @property {string} label what it is, for those who cannot see it
 * @property {string[]} [rowLabels] @property {string[]} [columnLabels]
 * @property {string} [rowTitle] what rows are ("query: target"), and columns @property {string} [columnTitle]
 * @property {import("regard/color-scales.js").Scale} [scale]
 * @property {import("regard/color-scales.js").Scale[]} [scales] of each row, instead of one scale
 * @property {(row: number, column: number) => void} [onpick]
 * @property {(row: number, column: number) => string} [tell] what else is said of a cell
 * @property {{row?: number, column?: number}} [mark] the row and column that are followed
 * @property {(row: number, column: number) => boolean} [hatched] what is masked @property {(row: number, column: number) => boolean} [framed] cells with a golden frame
 * @property {number} [cell] side of a cell in pixels; else it fits @property {number} [high] its height, if it is not a square @property {number} [digits] @property {boolean} [numbers] false: never printed
 * @property {number} [room] width in pixels that it may take
 */

const FONT = "px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";

/** Computes the places of the cells and labels of a matrix. */
function layout(m) {
  const large = enlarged();
  const longest = (labels) => large * Math.min(110, Math.max(0, ...(labels ?? []).map((l) => [...l].length)) * 7 + 8);
  const left = m.rowLabels ? longest(m.rowLabels) : 0;
  const top = m.columnLabels ? longest(m.columnLabels) : 0;
  const room = (m.room ?? Math.min(900, innerWidth - 48)) - left;
  const cell = m.cell ?? Math.max(3, Math.min(46 * large, Math.floor(room / Math.max(1, m.columns)), Math.floor((620 * large) / Math.max(1, m.rows))));
  const high = m.high ?? cell;
  return { left, top, cell, high, width: left + cell * m.columns + 1, height: top + high * m.rows + 1, numbers: m.numbers !== false && cell >= 34 * large && m.rows * m.columns <= 2000 };
}

/** Returns all numbers of a matrix, for its colour scale. */
function values(m) {
  const found = new Float32Array(m.rows * m.columns);
  for (let i = 0; i < m.rows; i++) for (let j = 0; j < m.columns; j++) found[i * m.columns + j] = m.at(i, j);
  return found;
}
export function matrix(m) {
  const place = layout(m);
  const scale = m.scales?.[0] ?? m.scale ?? scaleOf(values(m));
  const scaleAt = (i) => m.scales?.[i] ?? scale;
  const ratio = devicePixelRatio || 1;
  const canvas = h("canvas", { width: Math.ceil(place.width * ratio), height: Math.ceil(place.height * ratio), style: { width: `${place.width}px`, height: `${place.height}px` }, "aria-hidden": "true" });
  canvas.toSvg = () => shapes(m, place, scaleAt);
  const brush = canvas.getContext("2d");
  brush.scale(ratio, ratio);
  draw(brush, shapes(m, place, scaleAt));
  const light = h("div", { class: "crosshair", "aria-hidden": "true" });
  const cell = h("div", { class: "cell", role: "gridcell", tabindex: 0, "data-key": `cell-${m.label}` });
  const readout = h("output", { class: "readout" });
  let row = Math.max(0, m.mark?.row ?? 0);
  let column = Math.max(0, m.mark?.column ?? 0);
  const name = (labels, i) => labels?.[i] ?? String(i);
  const tell = (i, j) => `${m.rowTitle ?? t("row")} ${name(m.rowLabels, i)}, ${m.columnTitle ?? t("column")} ${name(m.columnLabels, j)}: ${fixed(m.at(i, j), m.digits ?? 3)}${m.tell ? ` ${m.tell(i, j)}` : ""}`;
  const move = (i, j) => {
    [row, column] = [Math.min(m.rows - 1, Math.max(0, i)), Math.min(m.columns - 1, Math.max(0, j))];
    Object.assign(cell.style, { left: `${place.left + column * place.cell}px`, top: `${place.top + row * place.high}px`, width: `${place.cell}px`, height: `${place.high}px` });
    cell.setAttribute("aria-rowindex", String(row + 1));
    cell.setAttribute("aria-colindex", String(column + 1));
    cell.setAttribute("aria-label", tell(row, column));
  };
  const show = (i, j) => {
    light.style.display = i < 0 ? "none" : "block";
    readout.textContent = i < 0 ? "" : tell(i, j);
    if (i >= 0) light.style.background = `linear-gradient(var(--light), var(--light)) 0 ${place.top + i * place.high}px / 100% ${place.high}px no-repeat, linear-gradient(var(--light), var(--light)) ${place.left + j * place.cell}px 0 / ${place.cell}px 100% no-repeat`;
  };
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top - place.top) / place.high);
    const j = Math.floor((event.clientX - box.left - place.left) / place.cell);
    return i >= 0 && i < m.rows && j >= 0 && j < m.columns ? [i, j] : [-1, -1];
  };
  const steps = ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] });
  cell.addEventListener("keydown", (event) => {
    if (event.key in steps) move(row + steps[event.key][0], column + steps[event.key][1]);
    else if ((event.key === "Enter" || event.key === " ") && m.onpick) m.onpick(row, column);
    else return;
    event.preventDefault();
    event.stopPropagation();
    show(row, column);
  });
  cell.addEventListener("focus", () => show(row, column));
  move(row, column);
  const grid = h("div", { class: "grid", role: "grid", "aria-label": m.label, "aria-rowcount": m.rows, "aria-colcount": m.columns, style: { width: `${place.width}px` } }, canvas, light, h("div", { role: "row" }, cell));
  grid.addEventListener("pointermove", (event) => { const [i, j] = under(event); show(i, j); });
  grid.addEventListener("pointerleave", () => show(-1, -1));
  grid.addEventListener("click", (event) => {
    const [i, j] = under(event);
    if (i < 0) return;
    move(i, j);
    m.onpick?.(i, j);
  });
  const box = h("div", { class: "matrix" }, h("div", { class: "scroll" }, grid), h("div", { class: "under" }, legend(scale, m.scales && t("colour.rowEnd")), readout));
  box.table = () => table(m);
  box.under = under;
  return box;
}

/** Prints the range of a colour scale, or words at its `end` where rows have ranges of their own. */
export function legend(scale, end = "") {
  const low = scale.signed ? -scale.high : 0;
  const stops = Array.from({ length: 9 }, (_, i) => color(low + ((scale.high - low) * i) / 8, scale));
  const ramp = h("i", { style: { background: `linear-gradient(to right, ${stops})` } });
  ramp.toSvg = () => stops.map((fill, n) => ({ kind: "cell", x: n * 10, y: 0, w: 10.2, h: 9, fill }));
  return h("span", { class: "legend" }, end && low ? `− ${end}` : fixed(low, 2), ramp, end || fixed(scale.high, 2));
}

/** Returns the matrix as a table, for readers who cannot see colours or want to copy it. */
export function table(m) {
  const rows = Math.min(m.rows, Math.max(1, Math.floor(2000 / Math.max(1, m.columns))));
  const cells = (i) => Array.from({ length: m.columns }, (_, j) => h("td", {}, fixed(m.at(i, j), m.digits ?? 3)));
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": m.label },
    h("table", {}, h("caption", {}, m.label, rows < m.rows ? ` (${t("firstRows", { n: rows, of: m.rows })})` : ""), h("thead", {}, h("tr", {}, h("td"), Array.from({ length: m.columns }, (_, j) => h("th", { scope: "col" }, m.columnLabels?.[j] ?? String(j))))), h("tbody", {}, Array.from({ length: rows }, (_, i) => h("tr", {}, h("th", { scope: "row" }, m.rowLabels?.[i] ?? String(i)), cells(i))))),
  );
}

/** Lists the shapes to draw, for the canvas and for SVG. */
function shapes(m, place, scaleAt) {
  const found = [];
  const frames = [];
  const [wide, size] = [place.cell, place.high];
  const gap = wide > 6 && size > 6 ? 1 : 0;
  const edge = (j) => (wide < 3 ? Math.round(j * wide) : j * wide); // narrow cells end at whole pixels, without seams
  const text = dark() ? "#d7dae0" : "#24272c";
  const gold = dark() ? "#ffcf4a" : "#976000";
  for (let i = 0; i < m.rows; i++) {
    const scale = scaleAt(i);
    for (let j = 0; j < m.columns; j++) {
      const [x, y, value] = [place.left + edge(j), place.top + i * size, m.at(i, j)];
      const w = edge(j + 1) - edge(j) - gap;
      const out = m.hatched?.(i, j);
      found.push({ kind: "cell", x, y, w, h: size - gap, fill: out ? color(NaN, scale) : color(value, scale) });
      if (out && size >= 8) found.push({ kind: "line", x, y: y + size - gap, w, h: -(size - gap), stroke: dark() ? "#565c66" : "#9a9da3", width: 1 });
      else if (place.numbers && !out) found.push({ kind: "text", x: x + wide / 2, y: y + size / 2 + 4, text: fixed(value, m.digits ?? 2), fill: ink(value, scale), anchor: "middle" });
      if (m.framed?.(i, j)) frames.push({ kind: "frame", x, y, w, h: size - gap, stroke: gold, width: 2 });
    }
  }
  const shorten = (label) => ([...label].length > 15 ? [...label].slice(0, 14).join("") + "…" : label);
  const [step, columnStep] = [size, wide].map((each) => Math.max(1, Math.ceil((11 * enlarged()) / each)));
  m.rowLabels?.forEach((label, i) => i % step === 0 && found.push({ kind: "text", x: place.left - 5, y: place.top + (i + 0.5) * size + 4, text: shorten(label), fill: i === m.mark?.row ? gold : text, anchor: "end" }));
  m.columnLabels?.forEach((label, j) => j % columnStep === 0 && found.push({ kind: "text", x: place.left + (j + 0.5) * wide + 4, y: place.top - 5, text: shorten(label), fill: j === m.mark?.column ? gold : text, anchor: "start", turn: true }));
  if (m.mark?.row !== undefined && m.mark.row >= 0) found.push({ kind: "frame", x: place.left, y: place.top + m.mark.row * size, w: wide * m.columns - gap, h: size - gap, stroke: gold, width: 2 });
  if (m.mark?.column !== undefined && m.mark.column >= 0) found.push({ kind: "frame", x: place.left + m.mark.column * wide, y: place.top, w: Math.max(2, wide - gap), h: size * m.rows - gap, stroke: gold, width: 2 });
  return found.concat(frames);
}
function draw(brush, list) {
  brush.font = 11 * enlarged() + FONT;
  for (const each of list) {
    if (each.kind === "cell") {
      brush.fillStyle = each.fill;
      brush.fillRect(each.x, each.y, each.w, each.h);
    } else if (each.kind === "text") {
      brush.fillStyle = each.fill;
      brush.textAlign = each.anchor === "end" ? "right" : each.anchor === "middle" ? "center" : "left";
      brush.save();
      brush.translate(each.x, each.y);
      if (each.turn) brush.rotate(-Math.PI / 2);
      brush.fillText(each.text, 0, 0);
      brush.restore();
    } else {
      brush.strokeStyle = each.stroke;
      brush.lineWidth = each.width;
      brush.beginPath();
      if (each.kind === "frame") brush.rect(each.x, each.y, each.w, each.h);
      else {
        brush.moveTo(each.x, each.y);
        brush.lineTo(each.x + each.w, each.y + each.h);
      }
      brush.stroke();
    }
  }
}

/** Returns the 256 colours of a scale as pixels, and keeps them for the next picture. */
const ramps = new Map();
function ramp(scale) {
  const key = `${scale.signed} ${scale.high} ${dark()}`;
  let found = ramps.get(key);
  if (!found) {
    found = Uint32Array.from({ length: 256 }, (_, i) => {
      const [r, g, b] = rgb(scale.signed ? scale.high * (i / 127.5 - 1) : (scale.high * i) / 255, scale);
      return 0xff000000 | (b << 16) | (g << 8) | r;
    });
    if (ramps.size > 50) ramps.clear();
    ramps.set(key, found);
  }
  return found;
}

/** Draws a small picture of a matrix, in colours only. */
export function thumbnail(rows, columns, at, scale, size, high = size) {
  const canvas = h("canvas", { class: "thumbnail", width: columns, height: rows, style: { width: `${size}px`, height: `${high}px` }, "aria-hidden": "true" });
  const brush = canvas.getContext("2d");
  const image = brush.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const steps = ramp(scale);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const value = at(i, j);
      const share = Number.isFinite(value) ? (scale.signed ? (value / scale.high + 1) / 2 : value / scale.high) : 0;
      pixels[i * columns + j] = steps[Math.min(255, Math.max(0, Math.round(share * 255)))];
    }
  brush.putImageData(image, 0, 0);
  canvas.toSvg = () => Array.from({ length: rows * columns }, (_, n) => ({ kind: "cell", x: ((n % columns) * size) / columns, y: (Math.floor(n / columns) * high) / rows, w: size / columns + 0.2, h: high / rows + 0.2, fill: color(at(Math.floor(n / columns), n % columns), scale) }));
  return canvas;
}
