/** Where a token stands: the model's own table of positions. */

import { get, positionTable } from "regard/data.js";
import { button, choice, fmt, h, math } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { cosine, dot } from "regard/maths.js";
import { matrix } from "regard/matrix.js";
import { plot, room } from "regard/plot.js";
import { extra, setExtra } from "regard/state.js";
import { t } from "regard/strings.js";

const ROWS = 64;

export async function render(root, ctx) {
  const { model, run } = ctx;
  const sides = Object.keys(model.embeddings);
  const side = sides.includes(extra("side")) ? extra("side") : ctx.stack.text;
  const about = await get(`api/positions?side=${side}&n=${ROWS}`);
  root.append(h("p", {}, t(`positions.${about.kind}`)));
  if (about.kind === "none") return;
  const stack = Object.keys(model.stacks).find((name) => model.stacks[name].text === side);
  const site = about.kind === "rotary" ? `${stack}.rotary` : `${model.embeddings[side]}.positions`;
  const off = () => ctx.set({ b: JSON.stringify({ patch: JSON.stringify([{ site, op: "zero" }]) }), ab: "both", view: "whatif" });
  root.append(h("div", { class: "selects" }, sides.length > 1 ? choice(t("positions.text"), sides.map((each) => [each, t(`text.${each}`)]), side, (value) => setExtra({ side: value })) : null, button(t("positions.off"), off)));
  const table = await positionTable(side, ROWS);
  const [rows, width] = table.shape;
  const column = Math.min(width - 1, Math.max(0, Number(extra("column", "0")) || 0));
  const pick = (j) => setExtra({ column: j });
  const here = side === "source" ? ctx.sel.q : ctx.sel.t;
  const waves = about.wavelengths && Array.from({ length: width }, (_, j) => about.wavelengths[j % about.wavelengths.length]);
  root.append(figure(t("positions.table"), matrix({ rows, columns: width, at: (i, j) => table.at(i, j), label: t("positions.table"), rowTitle: t("positions.position"), rowLabels: Array.from({ length: rows }, (_, i) => String(i)), mark: { row: here < rows ? here : -1, column }, numbers: false, cell: Math.max(3, Math.min(12, Math.floor(room(ctx, 900) / width))), onpick: (_, j) => pick(j), tell: (_, j) => (waves ? t("positions.wavelength", { n: fmt(waves[j]) }) : "") }), { name: `positions-${side}` }));
  root.append(h("div", { class: "plots" }, wave(ctx, table, about, waves, column, pick), waves ? wavelengths(ctx, waves, pick) : null, distances(ctx, table)));
  moved(root, ctx, table, about, waves, run.tokens(side));
}

/** The column that goes with this one: the cosine of its sine. */
function partner(kind, width, j) {
  if (kind === "sinusoidal") return j ^ 1;
  return kind === "learned" ? -1 : (j + width / 2) % width;
}

function wave(ctx, table, about, waves, column, pick) {
  const [rows, width] = table.shape;
  const line = (j) => Array.from({ length: rows }, (_, i) => [i, table.at(i, j)]);
  const other = partner(about.kind, width, column);
  const name = (j) => `${t("column")} ${j}`;
  const series = [{ name: name(column), points: line(column), marks: true }, ...(other >= 0 ? [{ name: name(other), points: line(other), dash: "4 3", tone: "var(--soft)" }] : [])];
  const input = h("input", { type: "number", min: 0, max: width - 1, value: String(column), "data-key": "positions-column", onchange: (event) => pick(event.target.value) });
  const title = waves ? `${name(column)}: ${t("positions.wavelength", { n: fmt(waves[column]) })}` : name(column);
  return figure(title, plot({ label: t("positions.wave"), series, width: room(ctx, 440), height: 210, x: { title: t("positions.position") }, y: { title: "PE" } }), { note: h("label", { class: "choice" }, h("span", {}, t("column")), input) });
}

function wavelengths(ctx, waves, pick) {
  return figure(t("positions.waves"), plot({ label: t("positions.waves"), series: [{ kind: "dot", points: waves.map((length, j) => [j, length]) }], width: room(ctx, 440), height: 210, x: { title: t("column") }, y: { title: t("positions.places"), log: true }, onpick: (_, j) => pick(j) }));
}

/** Mean products of positions by their distance. */
function distances(ctx, table) {
  const rows = table.shape[0];
  const mean = (of) => Array.from({ length: rows }, (_, k) => {
    let [sum, low, high] = [0, Infinity, -Infinity];
    for (let p = 0; p + k < rows; p++) {
      const value = of(table.row(p), table.row(p + k));
      [sum, low, high] = [sum + value, Math.min(low, value), Math.max(high, value)];
    }
    return [k, sum / (rows - k), low, high];
  });
  const draw = (title, found) => figure(title, plot({ label: title, series: [{ name: t("positions.mean"), points: found.map(([k, m]) => [k, m]), marks: true }, { name: t("positions.least"), points: found.map(([k, , low]) => [k, low]), dash: "3 3", tone: "var(--soft)" }, { name: t("positions.most"), points: found.map(([k, , , high]) => [k, high]), dash: "1 3", tone: "var(--k)" }], width: room(ctx, 440), height: 230, x: { title: t("positions.distance") }, y: {} }));
  return [draw(t("positions.dots"), mean(dot)), draw(t("positions.cosines"), mean(cosine))];
}

/** Places p turned by k places, pair by pair; null where there are no pairs. */
function turned(row, k, kind, waves) {
  if (!waves) return null;
  const found = new Float64Array(row.length);
  const cosines = (j) => (kind === "sinusoidal" ? j % 2 === 1 : kind === "rotary" ? j < row.length / 2 : j >= row.length / 2);
  row.forEach((x, j) => {
    const angle = (2 * Math.PI * k) / waves[j];
    found[j] = x * Math.cos(angle) + (cosines(j) ? -1 : 1) * row[partner(kind, row.length, j)] * Math.sin(angle);
  });
  return found;
}

/** The products of the sentence's positions, the sentence moved by k places. */
function moved(root, ctx, table, about, waves, tokens) {
  const rows = table.shape[0];
  const count = Math.min(tokens.length, Math.ceil(rows / 2));
  const shift = Math.min(rows - count, Number(extra("shift", "0")) || 0);
  const labels = tokens.slice(0, count).map((token) => token.display);
  const at = (i, j, k = shift) => dot(table.row(i + k), table.row(j + k));
  let [worst, miss] = [0, 0];
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < count; j++) worst = Math.max(worst, Math.abs(at(i, j) - at(i, j, 0)));
    turned(table.row(i), shift, about.kind, waves)?.forEach((x, j) => (miss = Math.max(miss, Math.abs(x - table.at(i + shift, j)))));
  }
  const slider = h("input", { type: "range", min: 0, max: rows - count, value: String(shift), "data-key": "positions-shift", oninput: (event) => setExtra({ shift: event.target.value }) });
  const facts = [
    h("p", { class: "receipt" }, t("positions.change", { n: fmt(worst, 2), k: shift })),
    waves ? h("p", { class: "receipt" }, math(`<mrow><mi>PE</mi><mo>[</mo><mi>p</mi><mo>+</mo><mn>${shift}</mn><mo>]</mo><mo>=</mo><mi>R</mi><mo>(</mo><mn>${shift}</mn><mo>)</mo><mi>PE</mi><mo>[</mo><mi>p</mi><mo>]</mo></mrow>`), ` max |Δ| = ${fmt(miss, 2)}`) : null,
    h("p", { class: "note" }, t(waves ? "positions.turning" : "positions.noTurning")),
  ];
  const body = matrix({ rows: count, columns: count, at, label: t("positions.moved"), rowLabels: labels, columnLabels: labels, room: room(ctx, 620), digits: 1 });
  root.append(figure(t("positions.moved"), [h("label", { class: "choice" }, h("span", {}, t("positions.by", { k: shift })), slider), body, ...facts], { note: count < tokens.length ? t("positions.first", { n: count }) : null }));
}
