/** Where tokens lie: the embedding table or the states of a layer on their two principal axes. */

import { get } from "regard/data.js";
import { button, choice, copy, fixed, h, percent, shown } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { dot, length } from "regard/maths.js";
import { plot, room } from "regard/plot.js";
import { extra, setExtra } from "regard/state.js";
import { bars } from "regard/strip.js";
import { t } from "regard/strings.js";

export async function render(root, ctx) {
  const { model, run } = ctx;
  const sides = Object.keys(model.embeddings);
  const side = sides.includes(extra("side")) ? extra("side") : ctx.stack.text;
  const stack = Object.keys(model.stacks).find((name) => model.stacks[name].text === side);
  const points = statePoints(ctx, side, stack);
  const at = extra("space") in points ? extra("space") : "";
  const here = side === "source" ? ctx.sel.q : ctx.sel.t;
  const shownMap = at ? await ofStates(ctx, side, points, at, here) : await ofTable(run.tokens(side), side, here);
  const change = (key) => (value) => setExtra({ [key]: value });
  const find = h("input", { type: "search", value: extra("find"), "data-key": "space-find", onchange: (event) => setExtra({ find: event.target.value }) });
  root.append(
    h(
      "div",
      { class: "selects" },
      sides.length > 1 ? choice(t("positions.text"), sides.map((each) => [each, t(`text.${each}`)]), side, change("side")) : null,
      choice(t("space.what"), [["", t("space.table")], ...Object.keys(points).map((name) => [name, name])], at, change("space")),
      at ? choice(t("space.axes"), [["all", t("space.all")], ["own", t("space.own")]], extra("axes", "all"), change("axes")) : null,
      h("label", { class: "choice" }, h("span", {}, t("space.find")), find),
    ),
  );
  scatter(root, ctx, shownMap, at);
  if (run.tokens(side)[here]) await neighbours(root, run.tokens(side)[here], side);
}

/** Tensors of the stream: what enters the stack, what leaves each layer. */
function statePoints({ model, run }, side, stack) {
  const input = `${model.embeddings[side]}.norm`;
  const found = { embedding: run.has(input) ? input : `${model.embeddings[side]}.sum` };
  for (let layer = 0; layer < model.stacks[stack].layers; layer++) found[`${stack} ${layer}`] = `${stack}.layers.${layer}.feed_forward_residual.${model.model.norm === "pre" ? "sum" : "norm"}`;
  return found;
}

/** The server's map of the most usual pieces and of the sentence. */
async function ofTable(tokens, side, here) {
  const ids = [...new Set(tokens.map((token) => token.id))];
  const map = await get(`api/embeddings/map?side=${side}&n=400&ids=${ids.join(",")}`);
  const all = map.ids.map((id, i) => ({ key: id, name: shown({ display: map.displays[i] }), point: map.points[i], own: ids.includes(id), here: id === tokens[here]?.id }));
  return { all, explained: map.explained };
}

/** The states of the sentence at one place, and the followed token's way through all of them. */
async function ofStates(ctx, side, points, at, here) {
  const names = Object.values(points);
  const [states, fitted] = await Promise.all([(name) => ctx.tensor(name), (name) => (ctx.which === "diff" ? ctx.tensor(name) : ctx.a.tensor(name))].map((get) => Promise.all(names.map(get))));
  const rows = (tensor) => Array.from({ length: tensor.shape[0] }, (_, i) => tensor.row(i));
  const index = Object.keys(points).indexOf(at);
  const { project, explained } = principal(extra("axes") === "own" ? rows(fitted[index]) : fitted.flatMap(rows));
  const tokens = ctx.run.tokens(side);
  const all = rows(states[index]).map((row, i) => ({ key: i, name: shown(tokens[i]), point: project(row), own: true, here: i === here }));
  return { all, explained, path: states.map((tensor) => project(tensor.row(here))), stops: Object.keys(points) };
}

/** The two axes along which rows differ most, by power iteration from the longest row. */
export function principal(rows) {
  const middle = Float64Array.from(rows[0], (_, j) => rows.reduce((sum, row) => sum + row[j], 0) / rows.length);
  const left = rows.map((row) => Float64Array.from(row, (x, j) => x - middle[j]));
  const total = left.reduce((sum, row) => sum + dot(row, row), 0) || 1;
  const axes = [0, 1].map(() => {
    let axis = Float64Array.from(left.reduce((best, row) => (dot(row, row) > dot(best, best) ? row : best)));
    for (let round = 0; round < 60; round++) {
      const next = new Float64Array(axis.length);
      for (const row of left) for (let j = 0, share = dot(row, axis); j < next.length; j++) next[j] += share * row[j];
      const size = length(next) || 1;
      const moved = 1 - Math.abs(dot(next, axis)) / size / (length(axis) || 1);
      axis = next.map((x) => x / size);
      if (moved < 1e-13) break;
    }
    const top = axis.reduce((best, x) => (Math.abs(x) > Math.abs(best) ? x : best), 0);
    if (top < 0) axis = axis.map((x) => -x);
    let variance = 0;
    for (const row of left) {
      const share = dot(row, axis);
      variance += share * share;
      for (let j = 0; j < row.length; j++) row[j] -= share * axis[j];
    }
    return { axis, share: variance / total };
  });
  return { project: (row) => axes.map(({ axis }) => dot(row, axis) - dot(middle, axis)), explained: axes.map(({ share }) => share) };
}

function scatter(root, ctx, { all, explained, path, stops }, at) {
  const wanted = extra("find").toLowerCase();
  const found = wanted ? all.filter((each) => each.name.toLowerCase().includes(wanted)) : [];
  const picked = new Set(extra("picked").split(",").filter(Boolean));
  const chosen = all.filter((each) => picked.has(String(each.key)));
  const part = (name, list, more) => ({ name, kind: "dot", points: list.map((each) => each.point), names: list.map((each) => each.name), list, ...more });
  const series = [
    part(t("space.usual"), all.filter((each) => !each.own), { tone: "var(--soft)", faint: true, size: 2.5 }),
    part(t("space.sentence"), all.filter((each) => each.own), { tone: "var(--gold)", named: true, size: 4 }),
    part(t("space.followed"), all.filter((each) => each.here), { tone: "var(--gold)", hollow: true, size: 8 }),
    part(t("space.found"), found, { tone: "var(--accent)", hollow: true, named: true, size: 6 }),
    part(t("space.picked"), chosen, { tone: "var(--out)", hollow: true, named: true, size: 5 }),
    { name: t("space.path"), points: path ?? [], names: stops, tone: "var(--q)", marks: true, named: true },
  ].filter((each) => each.points.length);
  const pick = (keys) => setExtra({ picked: [...keys].slice(0, 300).join(",") });
  const toggle = (k, i) => {
    const key = String(series[k].list?.[i]?.key ?? "");
    if (key && !picked.delete(key)) picked.add(key);
    pick(picked);
  };
  const title = t(at ? "space.states" : "space.pieces", { at });
  const label = (i) => t("space.axis", { n: i + 1, share: percent(explained[i]) });
  const take = button(t("space.copy"), () => copy(chosen.map((each) => each.name).join("\n"), take), { disabled: !chosen.length });
  root.append(
    figure(title, plot({ label: title, series, width: room(ctx, 860), height: Math.min(560, Math.max(300, room(ctx, 860) * 0.7)), x: { title: label(0) }, y: { title: label(1) }, onpick: toggle, onrange: (inside) => pick(new Set(inside.flatMap(([k, i]) => series[k].list?.[i].key ?? []))), tell: (k, i) => `${series[k].name}: ${series[k].names[i]} (${series[k].points[i].map((x) => fixed(x, 3)).join(", ")})` }), { note: t("space.how") }),
    h("div", { class: "selects" }, take, button(t("space.none"), () => pick([]), { disabled: !chosen.length }), found.length ? button(t("space.pickFound", { n: found.length }), () => pick(found.map((each) => each.key))) : wanted ? h("span", { class: "note" }, t("space.notFound")) : null),
    h("p", { class: "picked" }, chosen.map((each) => h("bdi", { class: "piece" }, each.name)).flatMap((each) => [each, " "])),
  );
}

/** The nearest pieces of the table. */
async function neighbours(root, token, side) {
  const near = await get(`api/embeddings/near?side=${side}&id=${token.id}&k=12`);
  const list = (key) => near[key] && h("div", {}, h("h3", {}, t(`space.${key}`)), bars(near[key].map((each) => ({ label: shown(each), value: each.value, onpick: () => setExtra({ find: each.display, space: "" }) })), { label: t(`space.${key}`) }));
  root.append(figure(t("space.near", { token: shown(token) }), h("div", { class: "plots" }, ["cosine", "dot", "other"].map(list))));
}
