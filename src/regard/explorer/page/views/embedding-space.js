/** Maps tokens to two principal axes of the embedding table or of the states of a layer. */

import { field, pick, plot, room, sideOf } from "regard/axis-charts.js";
import { button, copy, h, percent, shown } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { dot, length } from "regard/model-arithmetic.js";
import { foreign, get } from "regard/model-data-client.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { bars } from "regard/vector-strip.js";

export async function render(root, ctx) {
  const { side, here, stack, choice } = sideOf(ctx);
  const tokens = ctx.run.tokens(side);
  const points = statePoints(ctx, ctx.model.embeddings[side], stack);
  const at = Object.hasOwn(points, extra("space")) ? extra("space") : "";
  const map = at ? await ofStates(ctx, tokens, points, at, here) : await ofTable(tokens, side, here);
  root.append(h(
    "div", { class: "selects" }, choice, pick("space", t("space.what"), [["", t("space.table")], ...Object.keys(points).map((name) => [name, name])], at),
    field("find", t("space.find"), extra("find"), { type: "search" }),
  ), foreign(ctx.run) ? h("p", { class: "warning" }, t("finalWeights")) : "");
  scatter(root, ctx, map);
  if (!tokens[here]) return;
  const near = await get(`api/embeddings/near?side=${side}&id=${tokens[here].id}&k=12`);
  const list = (key) => near[key] && h(
    "div", {}, h("h3", {}, t(`space.${key}`)),
    bars(
      near[key].map((each) => ({ label: shown(each), value: each.value, onpick: () => setExtra({ find: each.display, space: "" }) })),
      { label: t(`space.${key}`) },
    ),
  );
  root.append(figure(t("space.near", { token: shown(tokens[here]) }), h("div", { class: "plots" }, ["cosine", "dot", "other"].map(list))));
}

/** Tensors of the stream: what enters the stack, what leaves each layer. */
function statePoints({ model, run }, embedding, stack) {
  const found = { embedding: `${embedding}.${run.has(`${embedding}.norm`) ? "norm" : "sum"}` };
  const last = model.model.norm === "pre" ? "sum" : "norm";
  for (let layer = 0; layer < model.stacks[stack].layers; layer++) found[`${stack} ${layer}`] = `${stack}.layers.${layer}.feed_forward_residual.${last}`;
  return found;
}

/** The server's map of pieces of the vocabulary and of the sentence. */
async function ofTable(tokens, side, here) {
  const ids = [...new Set(tokens.map((token) => token.id))];
  const map = await get(`api/embeddings/map?side=${side}&n=400&ids=${ids.join(",")}`);
  return {
    explained: map.explained, title: t(`space.pieces.${map.order}`, { n: map.usual, of: map.pieces, texts: map.texts }),
    all: map.ids.map((id, i) => ({
      key: id, name: shown({ display: map.displays[i] }), point: map.points[i], own: ids.includes(id), here: id === tokens[here]?.id,
    })),
  };
}

/** Axes that were found, by a tensor of the run. */
const fits = new WeakMap();

/** The states of the sentence at one place, and the followed token's way through all; A and B lie on the axes of A. */
async function ofStates(ctx, tokens, points, at, here) {
  const names = Object.values(points);
  const [states, fitted] = await Promise.all([ctx.run, ctx.a].map((run) => run.tensors(names)));
  const rows = (tensor) => Array.from({ length: tensor.shape[0] }, (_, i) => tensor.row(i));
  const index = Object.keys(points).indexOf(at);
  if (!fits.has(fitted[index])) fits.set(fitted[index], principal(fitted.flatMap(rows)));
  const { project, explained } = fits.get(fitted[index]);
  return {
    explained, title: t("space.states", { at }), all: rows(states[index]).map((row, i) => ({ key: `@${i}`, name: shown(tokens[i]), point: project(row), own: true, here: i === here })),
    path: states.map((tensor) => project(tensor.row(here))), stops: Object.keys(points),
  };
}

/** The two axes along which rows differ most, by power iteration from the longest row. */
function principal(rows) {
  const middle = Float64Array.from(rows[0], (_, j) => rows.reduce((sum, row) => sum + row[j], 0) / rows.length);
  const left = rows.map((row) => Float64Array.from(row, (x, j) => x - middle[j]));
  const sizes = () => left.reduce((sum, row) => sum + dot(row, row), 0);
  const total = sizes() || 1;
  const axes = [0, 1].map(() => {
    const before = sizes();
    let axis = left.reduce((best, row) => (dot(row, row) > dot(best, best) ? row : best)).slice();
    for (let round = 0, turned = 1; round < 60 && turned > 1e-13; round++) {
      const next = new Float64Array(axis.length);
      for (const row of left) for (let j = 0, share = dot(row, axis); j < next.length; j++) next[j] += share * row[j];
      const size = length(next) || 1;
      turned = 1 - dot(next, axis) / size / (length(axis) || 1);
      axis = next.map((x) => x / size);
    }
    if (axis.reduce((best, x) => (Math.abs(x) > Math.abs(best) ? x : best), 0) < 0) axis = axis.map((x) => -x);
    for (const row of left) for (let j = 0, share = dot(row, axis); j < row.length; j++) row[j] -= share * axis[j];
    return { axis, share: (before - sizes()) / total };
  });
  return { project: (row) => axes.map(({ axis }) => dot(row, axis) - dot(middle, axis)), explained: axes.map(({ share }) => share) };
}

function scatter(root, ctx, { all, explained, title, path = [], stops = [] }) {
  const wanted = extra("find").toLowerCase();
  const picked = new Set(extra("picked").split(",").filter(Boolean));
  const part = (key, test, how) => ({ name: t(`space.${key}`), kind: "dot", list: all.filter(test), ...how });
  const found = part("found", (each) => wanted && each.name.toLowerCase().includes(wanted), { tone: "var(--accent)", hollow: true, named: true, size: 6 });
  const chosen = part("picked", (each) => picked.has(String(each.key)), { tone: "var(--out)", hollow: true, named: true, size: 5 });
  const series = [
    part("sentence", (each) => each.own, { tone: "var(--gold)", named: true, size: 4 }),
    part("usual", (each) => !each.own, { tone: "var(--soft)", faint: true }),
    part("followed", (each) => each.here, { tone: "var(--gold)", hollow: true, size: 8 }),
    found,
    chosen,
    { name: t("space.path"), points: path, names: stops, tone: "var(--q)", marks: true, named: true },
  ].map((each) => ({ points: each.list?.map(({ point }) => point), names: each.list?.map(({ name }) => name), ...each })).filter((each) => each.points.length);
  const keep = (keys) => setExtra({ picked: [...new Set(keys)].slice(0, 300).join(",") });
  const keyOf = ({ series, i }) => (series.list ? [String(series.list[i].key)] : []);
  const toggle = (point) => keep(keyOf(point).some((key) => picked.delete(key)) ? picked : [...picked, ...keyOf(point)]);
  const [x, y] = explained.map((share, i) => ({ title: t("space.axis", { n: i + 1, share: percent(share) }) }));
  const take = button(t("space.copy"), () => copy(chosen.list.map((each) => each.name).join("\n"), take), { disabled: !chosen.list.length });
  const width = room(ctx, 860);
  root.append(
    figure(
      title,
      plot({
        label: title, series, width, height: Math.max(300, Math.min(560, width * 0.7)), x, y, onpick: toggle, onrange: (inside) => keep(inside.flatMap(keyOf)),
      }),
      { note: t("space.how") },
    ),
    h(
      "div", { class: "selects" }, take, button(t("space.none"), () => keep([]), { disabled: !chosen.list.length }),
      found.list.length ? button(
        t("space.pickFound", { n: found.list.length }), () => keep(found.list.map((each) => each.key)),
      ) : wanted ? h("span", { class: "note" }, t("space.notFound")) : null,
    ),
    h("p", { class: "picked" }, chosen.list.flatMap((each) => [h("bdi", { class: "piece" }, each.name), " "])),
  );
}
