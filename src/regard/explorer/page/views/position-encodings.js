/** Shows the model's table of positions, and how positions compare. */

import { field, plot, room, sideOf } from "regard/axis-charts.js";
import { button, fmt, h, math, shown } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { matrix } from "regard/matrix-heatmap.js";
import { cosine, dot, mean } from "regard/model-arithmetic.js";
import { foreign, get, positionTable } from "regard/model-data-client.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

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
  const column = Math.min(width - 1, Math.max(0, Number(extra("column", "0")) || 0));
  const onpick = (_, j) => setExtra({ column: j });
  const wavelength = (j) => (waves ? t("positions.wavelength", { n: fmt(waves[j]) }) : "");
  root.append(figure(
    t("positions.table", { n: rows - 1 }),
    matrix({
      rows, columns: width, at: (i, j) => table.at(i, j), label: t("positions.table", { n: rows - 1 }), rowTitle: t("positions.position"), rowLabels: range(rows, String),
      mark: { row: here < rows ? here : -1, column }, numbers: false, cell: Math.max(3, Math.min(9, Math.floor(room(ctx, 900) / width))), onpick,
      tell: (_, j) => wavelength(j),
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
          onpick: (point) => onpick(0, point.i),
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
