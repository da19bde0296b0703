/** Shows any parameter in colours and in figures, and the circuits of a head. */

import { field, pick, plot, room } from "regard/axis-charts.js";
import { button, choice, fixed, fmt, h } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { matrix } from "regard/matrix-heatmap.js";
import { foreign, get, weight } from "regard/model-data-client.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

export async function render(root, ctx) {
  const { model } = ctx;
  const all = Object.keys(model.weights);
  const circuits = ["qk", "ov"].map((kind) => `${ctx.attention}.${ctx.sel.head}.${kind}`);
  const isCircuit = (each) => /\.\d+\.(qk|ov)$/.test(each);
  const asked = extra("weight");
  const name = all.includes(asked) || isCircuit(asked) ? asked : all.find((each) => each.startsWith(ctx.attention)) ?? all[0];
  const wanted = extra("weightFind").toLowerCase().split(/\s+/);
  const found = [...new Set([name, ...circuits, ...all])].filter((each) => each === name || wanted.every((part) => each.toLowerCase().includes(part)));
  const to = (value) => setExtra({ weight: value, cell: "", row0: "", column0: "" });
  root.append(
    h(
      "div", { class: "selects" }, field("weightFind", t("space.find"), extra("weightFind"), { type: "search" }),
      choice(t("weights.name", { n: found.length }), found.map((each) => [each, `${each} ${(model.weights[each] ?? []).join("×")}`]), name, to),
      circuits.map((each) => button(t(`weights.${each.slice(-2)}`), () => to(each), { "aria-pressed": each === name, "data-key": each })),
    ),
    foreign(ctx.run) ? h("p", { class: "warning" }, t("finalWeights")) : "",
  );
  const { shape, mean, std, min, max, histogram, singular } = await get(`api/weights/summary?name=${name}`);
  root.append(await picture(ctx, name, shape));
  if (isCircuit(name)) await circuit(root, name, shape[0], model.limits.weights);
  const draw = (title, p) => figure(title, plot({ label: title, width: room(ctx, 440), ...p }));
  root.append(
    h("p", { class: "receipt" }, Object.entries({ mean, std, min, max }).map(([key, value]) => `${t(`weights.${key}`)} ${fmt(value, 4)}`).join(" · ")),
    h(
      "div",
      { class: "plots" },
      draw(
        t("weights.histogram"),
        {
          series: [{ kind: "bar", points: histogram.counts.map((count, i) => [(histogram.edges[i] + histogram.edges[i + 1]) / 2, count]) }],
          x: { title: t("weights.value") }, y: { title: t("weights.count"), zero: true },
        },
      ),
      singular ? draw(
        t("weights.singular", { n: singular.length }),
        { series: [{ points: singular.map((value, i) => [i + 1, value]), marks: true }], x: {}, y: { zero: true } },
      ) : null,
    ),
  );
}

/** A window of the matrix; a vector is wrapped like text. */
async function picture(ctx, name, shape) {
  const size = Number(extra("window")) || 128;
  const flat = shape.length === 1;
  const wrap = shape[0] > 512 ? 128 : 16;
  const cell = extra("cell") ? extra("cell").split(",").map((each) => Number(each) || 0) : [-1, -1];
  const [high, wide] = flat ? [Math.ceil(shape[0] / wrap), wrap] : shape;
  const first = (key, most, near) => Math.max(0, Math.min(most - size, extra(key) ? Math.floor(Number(extra(key))) || 0 : near - size / 2));
  const [top, left] = flat ? [0, 0] : [first("row0", high, cell[0]), first("column0", wide, cell[1])];
  const [rows, columns] = [flat ? high : Math.min(size, high - top), Math.min(size, wide - left)];
  const tensor = await (flat ? weight(name) : weight(name, `${top}:${top + rows}`, `${left}:${left + columns}`));
  const out = (i, j) => flat && i * wrap + j >= shape[0];
  const [row, column] = !flat ? [cell[0] - top, cell[1] - left] : cell[0] < 0 ? [-1, -1] : [Math.floor(cell[0] / wrap), cell[0] % wrap];
  const numbers = (from, count, step = 1) => Array.from({ length: count }, (_, i) => String(from + i * step));
  const body = matrix({
    rows, columns, at: (i, j) => (out(i, j) ? 0 : flat ? tensor.data[i * wrap + j] : tensor.at(i, j)), hatched: out, label: name,
    rowLabels: numbers(top, rows, flat ? wrap : 1), columnLabels: numbers(left, columns),
    mark: { row: row < rows ? row : -1, column: column < columns ? column : -1 }, room: room(ctx, 900),
    onpick: (i, j) => setExtra({ cell: flat ? i * wrap + j : `${top + i},${left + j}`, row0: top, column0: left }),
  });
  const part = (key, value, most) => (most > 0 ? field(key, t(`weights.${key}`), value, { type: "number", min: 0, max: most }) : null);
  const controls = flat || high * wide <= 256 ? null : h(
    "div", { class: "selects" }, pick("window", t("weights.window"), [16, 32, 128, 256].map((each) => [each, `${each} × ${each}`]), size),
    part("row0", top, high - size), part("column0", left, wide - size),
  );
  return figure(`${name} [${shape.join(" × ")}]`, [controls, body], { name });
}

/** Whether a head's circuit passes on what it reads: its diagonal against the rest, and its largest numbers. */
async function circuit(root, name, width, most) {
  root.append(h("p", {}, t(`weights.explain.${name.slice(-2)}`)));
  if (width * width > most) return;
  const { data } = await weight(name);
  const total = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const diagonal = total(data.filter((_, i) => i % (width + 1) === 0));
  const top = Array.from(data.keys()).sort((a, b) => Math.abs(data[b]) - Math.abs(data[a])).slice(0, 8).map((i) => [Math.floor(i / width), i % width, data[i]]);
  root.append(
    h("p", { class: "receipt" }, t("weights.diagonal", { same: fmt(diagonal / width), rest: fmt((total(data) - diagonal) / (data.length - width || 1)) })),
    h(
      "p", { class: "selects" }, t("weights.largest"),
      top.map(([i, j, value]) => button(`[${i}, ${j}] ${fixed(value, 3)}`, () => setExtra({ cell: `${i},${j}`, row0: "", column0: "" }))),
    ),
  );
}
