/** Shows the model's table of positions, and how positions compare. */

import { field, pick, plot, room, sideOf } from "regard/axis-charts.js";
import { button, fmt, h, math, shown, tick } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { matrix } from "regard/matrix-heatmap.js";
import { cosine, dot, mean } from "regard/model-arithmetic.js";
import { foreign, get, positionTable } from "regard/model-data-client.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

const FEW = "20";
const range = (count, of) => Array.from({ length: count }, (_, i) => of(i));

export async function render(root, ctx) {
  const { side, here, stack, choice } = sideOf(ctx);
  const { kind, layout, wavelengths: waves } = await get(`api/positions?side=${side}&n=64`);
  root.append(h("p", {}, t(`positions.${kind}`)), foreign(ctx.run) ? h("p", { class: "warning" }, t("finalWeights")) : "");
  if (kind === "none") return;
  const site = kind === "rotary" ? `${stack}.rotary` : `${ctx.model.embeddings[side]}.positions`;
  const off = () => ctx.set({ b: JSON.stringify({ patch: JSON.stringify([{ site, op: "zero" }]) }), ab: "both", view: "whatif" });
  root.append(h("div", { class: "selects" }, choice, button(t("positions.off"), off)));
  const table = await positionTable(side, 64);
  const [rows, width] = table.shape;
  const few = extra("rows") === FEW ? Math.min(Number(FEW), rows) : rows;
  const split = kind === "sinusoidal" && layout === "interleaved" && extra("halves") === "1";
  const order = range(width, (j) => (split ? (j < width / 2 ? 2 * j : 2 * (j - width / 2) + 1) : j));
  const column = Math.min(width - 1, Math.max(0, Number(extra("column", "0")) || 0));
  const onpick = (_, j) => setExtra({ column: order[j] });
  const wavelength = (j) => (waves ? t("positions.wavelength", { n: fmt(waves[j]) }) : "");
  const title = t("positions.table", { n: few - 1 });
  root.append(h(
    "div", { class: "selects" }, pick("rows", t("positions.rows"), [["", String(rows)], [FEW, FEW]], extra("rows")),
    kind === "sinusoidal" && layout === "interleaved" ? tick(t("positions.halves"), split, (on) => setExtra({ halves: on ? 1 : 0 })) : null,
  ), figure(
    title,
    matrix({
      rows: few, columns: width, at: (i, j) => table.at(i, order[j]), label: title, rowTitle: t("positions.position"), rowLabels: range(few, String),
      columnTitle: split ? t("positions.columnOf") : undefined, mark: { row: here < few ? here : -1, column: order.indexOf(column) }, numbers: false,
      cell: Math.min(few < rows ? 18 : 9, Math.max(0.5, (room(ctx, 1100) - 36) / width)), high: few < rows ? 18 : 9, onpick, tell: (_, j) => `${split ? `(${t("column")} ${order[j]}) ` : ""}${wavelength(order[j])}`,
    }),
    { name: `positions-${side}`, python: kind === "rotary" ? undefined : ctx.python(site) },
  ));
  const partner = (j) => (layout === "interleaved" ? j ^ 1 : (j + width / 2) % width);
  const line = (j, how) => ({ name: `${t("column")} ${j}`, points: range(rows, (i) => [i, table.at(i, j)]), ...how });
  const draw = (title, p, note) => figure(title, plot({ label: title, width: room(ctx, 440), ...p }), { note });
  const chosen = [line(column, { marks: true }), ...(waves ? [line(partner(column), { dash: "4 3", tone: "var(--soft)" })] : [])];
  const distance = (name, of) => draw(
    t("positions.mean", { name }),
    {
      series: [{ points: range(rows, (k) => [k, mean(range(rows - k, (p) => of(table.row(p), table.row(p + k))))]), marks: true }],
      x: { title: t("positions.distance") },
    },
  );
  root.append(
    h(
      "div",
      { class: "plots" },
      draw(
        `${t("column")} ${column} ${wavelength(column)}`, { series: chosen, x: { title: t("positions.position") } },
        field("column", t("column"), column, { type: "number", min: 0, max: width - 1 }),
      ),
      waves ? draw(
        t("positions.waves"),
        {
          series: [{ kind: "dot", points: waves.map((length, j) => [j, length]) }], x: { title: t("column") }, y: { title: t("positions.places"), log: true },
          onpick: (point) => setExtra({ column: point.i }),
        },
      ) : null,
      distance("PE[p] · PE[p + k]", dot),
      distance("cos(PE[p], PE[p + k])", cosine),
    ),
    moved(ctx, table, ctx.run.tokens(side), waves && ((row, k) => row.map((x, j) => {
      const [angle, isCosine] = [(2 * Math.PI * k) / waves[j], layout === "interleaved" ? j % 2 > 0 : j < width / 2 === (kind === "rotary")];
      return x * Math.cos(angle) + (isCosine ? -1 : 1) * row[partner(j)] * Math.sin(angle);
    }))),
  );
}

/** The products of the sentence's positions, the sentence moved by k places; `turn` turns a position by k. */
function moved(ctx, table, tokens, turn) {
  const rows = table.shape[0];
  const count = Math.min(tokens.length, Math.ceil(rows / 2));
  const k = Math.min(rows - count, Number(extra("shift", "0")) || 0);
  const labels = tokens.slice(0, count).map(shown);
  const at = (i, j, by = k) => dot(table.row(i + by), table.row(j + by));
  const most = (of) => fmt(Math.max(...range(count, (i) => Math.max(...of(i)))), 2);
  const change = most((i) => range(count, (j) => Math.abs(at(i, j) - at(i, j, 0))));
  const body = [
    field("shift", t("positions.by", { k }), k, { type: "range", min: 0, max: rows - count }),
    matrix({ rows: count, columns: count, at, label: t("positions.moved"), rowLabels: labels, columnLabels: labels, room: room(ctx, 560), digits: 1 }),
    h("p", { class: "receipt" }, t("positions.change", { n: change, k })),
    turn ? h(
      "p", { class: "receipt" },
      math(`<mrow><mi>PE</mi><mo>[</mo><mi>p</mi><mo>+</mo><mn>${k}</mn><mo>]</mo><mo>=</mo><mi>R</mi><mo>(</mo><mn>${k}</mn><mo>)</mo><mi>PE</mi><mo>[</mo><mi>p</mi><mo>]</mo></mrow>`),
      ` max |Δ| = ${most((i) => turn(Array.from(table.row(i)), k).map((x, j) => Math.abs(x - table.at(i + k, j))))}`,
    ) : null,
    h("p", { class: "note" }, t(turn ? "positions.turning" : "positions.noTurning")),
  ];
  return figure(t("positions.moved"), body, { note: count < tokens.length ? t("positions.first", { n: count }) : null });
}
