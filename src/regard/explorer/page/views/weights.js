/** Any parameter in colours and in figures, and the circuits of a head. */

import { get, weight } from "regard/data.js";
import { button, choice, fixed, fmt, h } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { matrix } from "regard/matrix.js";
import { plot, room } from "regard/plot.js";
import { extra, setExtra } from "regard/state.js";
import { t } from "regard/strings.js";

export async function render(root, ctx) {
  const { model } = ctx;
  const all = Object.keys(model.weights);
  const circuits = ["qk", "ov"].map((kind) => `${ctx.attention}.${ctx.sel.head}.${kind}`);
  const asked = extra("weight");
  const name = asked in model.weights || /\.\d+\.(qk|ov)$/.test(asked) ? asked : all.find((each) => each.startsWith(`${ctx.attention}.query`)) ?? all[0];
  const wanted = extra("weightFind").toLowerCase().split(/\s+/);
  const found = [...new Set([name, ...circuits, ...all])].filter((each) => each === name || wanted.every((part) => each.toLowerCase().includes(part)));
  const to = (value) => setExtra({ weight: value, cell: "", row0: "", column0: "" });
  root.append(
    h("div", { class: "selects" }, h("label", { class: "choice" }, h("span", {}, t("space.find")), h("input", { type: "search", value: extra("weightFind"), "data-key": "weight-find", onchange: (event) => setExtra({ weightFind: event.target.value }) })), choice(t("weights.name", { n: found.length }), found.map((each) => [each, `${each} ${(model.weights[each] ?? ["d", "d"]).join("×")}`]), name, to)),
    h("div", { class: "selects" }, circuits.map((each, i) => button(t(i ? "weights.ov" : "weights.qk"), () => to(each), { "aria-pressed": each === name, "data-key": each }))),
  );
  if (ctx.sel.checkpoint || ctx.sel.b.includes("checkpoint")) root.append(h("p", { class: "note" }, t("weights.final")));
  const summary = await get(`api/weights/summary?name=${name}`);
  await picture(root, ctx, name, summary.shape);
  figures(root, ctx, summary);
  if (name.endsWith(".ov") || name.endsWith(".qk")) await circuit(root, name, summary.shape, model.limits.weights);
}

/** A window of the matrix; a vector is wrapped like text. */
async function picture(root, ctx, name, shape) {
  const [cellRow, cellColumn] = extra("cell") ? extra("cell").split(",").map(Number) : [];
  const size = Number(extra("window", "128"));
  const flat = shape.length === 1;
  const [high, wide] = flat ? [Math.ceil(shape[0] / 16), 16] : shape;
  const first = (key, most, cell) => Math.max(0, Math.min(most - size, extra(key) ? Number(extra(key)) : Math.max(0, (cell ?? 0) - size / 2)));
  const [top, left] = flat ? [0, 0] : [first("row0", high, cellRow), first("column0", wide, cellColumn)];
  const [rows, columns] = flat ? [Math.min(high, 128), 16] : [Math.min(size, high - top), Math.min(size, wide - left)];
  const tensor = await (flat ? weight(name) : weight(name, `${top}:${top + rows}`, `${left}:${left + columns}`));
  const numbers = (from, count, step = 1) => Array.from({ length: count }, (_, i) => String((from + i) * step));
  const mark = flat ? { row: cellRow >= 0 ? Math.floor(cellRow / 16) : -1, column: cellRow >= 0 ? cellRow % 16 : -1 } : { row: cellRow - top, column: cellColumn - left };
  const inside = mark.row >= 0 && mark.row < rows && mark.column >= 0 && mark.column < columns;
  const input = (key, label, value, most) => h("label", { class: "choice" }, h("span", {}, label), h("input", { type: "number", min: 0, max: most, value: String(value), "data-key": key, onchange: (event) => setExtra({ [key]: event.target.value }) }));
  const out = (i, j) => flat && i * 16 + j >= shape[0];
  const body = matrix({ rows, columns, at: (i, j) => (out(i, j) ? 0 : flat ? tensor.data[i * 16 + j] : tensor.at(i, j)), hatched: out, label: name, rowLabels: numbers(top, rows, flat ? 16 : 1), columnLabels: numbers(left, columns), mark: inside ? mark : undefined, framed: (i, j) => inside && i === mark.row && j === mark.column, room: room(ctx, 900), onpick: (i, j) => setExtra({ cell: flat ? i * 16 + j : `${top + i},${left + j}` }) });
  const controls = flat || (high <= 16 && wide <= 16) ? null : h("div", { class: "selects" }, choice(t("weights.window"), [16, 32, 128, 256].map((each) => [each, `${each} × ${each}`]), size, (value) => setExtra({ window: value })), high > size ? input("row0", t("weights.row"), top, high - size) : null, wide > size ? input("column0", t("weights.column"), left, wide - size) : null);
  const python = `import regard\n\nregard.load(${JSON.stringify(ctx.model.path ?? ctx.model.name)}).model.get_parameter(${JSON.stringify(name)})\n`;
  root.append(figure(`${name} [${shape.join(" × ")}]`, [controls, body], { name, python: name in ctx.model.weights ? python : undefined }));
}

function figures(root, ctx, { mean, std, min, max, histogram, singular }) {
  const middle = histogram.counts.map((count, i) => [(histogram.edges[i] + histogram.edges[i + 1]) / 2, count]);
  const how = { width: room(ctx, 440), height: 220 };
  root.append(
    h("p", { class: "receipt" }, Object.entries({ mean, std, min, max }).map(([key, value]) => `${t(`weights.${key}`)} ${fmt(value, 4)}`).join(" · ")),
    h("div", { class: "plots" }, figure(t("weights.histogram"), plot({ ...how, label: t("weights.histogram"), series: [{ kind: "bar", points: middle }], x: { title: t("weights.value") }, y: { title: t("weights.count"), zero: true } })), singular ? figure(t("weights.singular", { n: singular.length }), plot({ ...how, label: t("weights.singular", { n: singular.length }), series: [{ points: singular.map((value, i) => [i + 1, value]), marks: true }], x: { title: t("weights.number") }, y: { zero: true } })) : null),
  );
}

/** Whether a head's circuit passes on what it reads: its diagonal against the rest, and its largest numbers. */
async function circuit(root, name, [rows, columns], most) {
  const kind = name.slice(-2);
  root.append(h("p", {}, t(`weights.explain.${kind}`)));
  if (rows * columns > most) return;
  const { data } = await weight(name);
  const same = Array.from({ length: rows }, (_, i) => data[i * columns + i]);
  const sum = same.reduce((a, b) => a + b, 0);
  const rest = (data.reduce((a, b) => a + b, 0) - sum) / (data.length - rows || 1);
  const top = Array.from(data, (_, i) => i).sort((a, b) => Math.abs(data[b]) - Math.abs(data[a])).slice(0, 8);
  root.append(h("p", { class: "receipt" }, t("weights.diagonal", { same: fmt(sum / rows), rest: fmt(rest) })), h("p", { class: "note" }, t("weights.largest"), " ", top.map((i) => button(`[${Math.floor(i / columns)}, ${i % columns}] ${fixed(data[i], 3)}`, () => setExtra({ cell: `${Math.floor(i / columns)},${i % columns}`, row0: "", column0: "" }))).flatMap((each) => [each, " "])));
}
