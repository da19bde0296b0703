/** Shows one sentence at several steps of training. */

import { field, plot, room } from "regard/axis-charts.js";
import { color, ink, scaleOf } from "regard/color-scales.js";
import { button, fixed, h, percent, shown, tick } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { matrix, thumbnail } from "regard/matrix-heatmap.js";
import { mean } from "regard/model-arithmetic.js";
import { offline, run as runModel } from "regard/model-data-client.js";
import { extra, request, setExtra, state } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { ranked } from "regard/views/logit-lens.js";

/** The latest drawing of each side; an older one stops. */
const turns = {};

export async function render(root, ctx) {
  const list = ctx.model.checkpoints ?? [];
  if (!list.length) return void root.append(h("p", {}, t("time.none")), h("pre", {}, "regard train ... --training.history 8"));
  if (offline) return void root.append(h("p", {}, t("offlineMissing")));
  const turn = (turns[ctx.which] = (turns[ctx.which] ?? 0) + 1);
  const progress = h("progress", { max: list.length + 1, value: 0, "aria-label": t("time.progress") });
  const parts = h("div", { "aria-busy": "true" }, t("time.progress"), " ", progress);
  root.append(parts);
  const work = async () => {
    const stops = await gather(ctx, list, (done) => (progress.value = done), () => turns[ctx.which] === turn);
    if (stops) parts.replaceChildren(...(await drawings(ctx, stops)).filter(Boolean));
  };
  const told = (error) => parts.replaceChildren(h("p", { class: "error", role: "alert" }, error.offline ? t("offlineMissing") : error.message));
  await Promise.race([work().catch(told).then(() => parts.removeAttribute("aria-busy")), new Promise((done) => setTimeout(done, 150))]);
}

/** A run of each step, one after another, the final model last; nothing when nobody waits any more. */
async function gather(ctx, list, tell, wanted) {
  const asked = request(state, ctx.which === "b" ? state.b : "");
  if (extra("forced") && ctx.model.task === "translate") Object.assign(asked, { target: ctx.run.answer.text, prefix: null });
  const stops = [];
  for (const each of [...list, { id: null, step: list.at(-1).step + 1, scores: {} }]) {
    if (!wanted()) return null;
    stops.push({ ...each, name: each.id ? String(each.step) : t("time.final"), run: await runModel({ ...asked, checkpoint: each.id }) });
    tell(stops.length);
  }
  return stops;
}

async function drawings(ctx, stops) {
  const found = stops.findIndex((each) => each.id === extra("stop"));
  const at = found < 0 ? stops.length - 1 : found;
  const go = (i) => setExtra({ stop: stops[i].id ?? "" });
  const lens = `${ctx.stack.name}.lens.rank`;
  const all = (name) => Promise.all(stops.map((each) => each.run.tensor(name)));
  const [weights, entropies, ranks, learned] = await Promise.all([
    all(`${ctx.attention}.weights`), all(`${ctx.attention}.entropy`), ctx.run.has(lens) ? all(lens) : null,
    ctx.model.model.positions === "learned" ? all(`${ctx.model.embeddings[ctx.stack.text]}.positions`) : null,
  ]);
  return [
    h(
      "div",
      { class: "selects" },
      field("stop", `${t("time.step")} ${stops[at].name}`, at, { type: "range", min: 0, max: stops.length - 1, oninput: (event) => go(event.target.value) }),
      ctx.model.task === "translate" ? tick(t("time.forced"), Boolean(extra("forced")), (value) => setExtra({ forced: value ? "1" : "" })) : null,
      stops[at].id ? button(t("time.compare"), () => ctx.set({ b: JSON.stringify({ checkpoint: stops[at].id }), ab: "both", view: "atlas" })) : null,
    ),
    outputs(ctx, stops, at, go),
    ...heads(ctx, stops, at, go, weights, entropies),
    ranks && rankTable(ctx, stops, ranks),
    learned && figure(
      t("time.positions"),
      h("div", { class: "stops" }, stops.map((each, i) => h("span", { class: "stop" }, picture(learned[i], scaleOf(learned.at(-1).data, true)), each.name))),
    ),
  ];
}

const picture = (tensor, scale) => thumbnail(tensor.shape[0], tensor.shape[1], (i, j) => tensor.at(i, j), scale, 84);

/** A table whose first column names the steps. */
function steps(title, heads, stops, cells, first = (each, _) => each.name) {
  return figure(
    title,
    h(
      "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
      h(
        "table", {}, h("thead", {}, h("tr", {}, [t("time.step"), ...heads].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, stops.map((each, i) => h("tr", {}, h("th", { scope: "row" }, first(each, i)), cells(each, i)))),
      ),
    ),
  );
}

/** Shows the output of each step, and its prediction at the followed position. */
function outputs(ctx, stops, at, go) {
  const scores = [...new Set(stops.flatMap((each) => Object.keys(each.scores)))];
  const some = stops.some((each) => each.run.answer.steps.length);
  const number = (x) => h("td", {}, Number.isFinite(x) ? fixed(x, 2) : "–");
  const cells = ({ scores: own, run: { answer } }) => {
    const top = answer.steps.find((one) => one.position === ctx.sel.t)?.top ?? [];
    const labels = answer.labels?.map((one) => Object.entries(one.probabilities).sort((x, y) => y[1] - x[1])[0].map((x, i) => (i ? percent(x) : x)).join(" "));
    return [
      h("td", { class: "words", dir: "auto" }, h("div", { tabindex: 0 }, labels?.length ? labels.join(", ") : answer.text)), number(answer.log_probability),
      some ? h("td", {}, top.slice(0, 2).map((one) => h("div", {}, `${shown(one)} ${percent(one.probability)}`))) : null, scores.map((name) => number(own[name])),
    ];
  };
  return steps(
    t("time.outputs"), [t("time.output"), "log p", ...(some ? [t("time.best", { t: ctx.sel.t })] : []), ...scores], stops, cells,
    (each, i) => button(each.name, () => go(i), { "aria-pressed": i === at, "data-key": `step-${i}` }),
  );
}

/** The selected head at every step: small pictures, one large, and its entropy. */
function heads(ctx, stops, at, go, weights, entropies) {
  const { head } = ctx.sel;
  const one = { signed: false, high: 1 };
  const small = stops.map((each, i) => h(
    "button",
    { type: "button", class: "stop", "aria-pressed": i === at, "data-key": `stop-${i}`, "aria-label": `${t("time.step")} ${each.name}`, onclick: () => go(i) },
    picture(weights[i].sub(head), one), each.name,
  ));
  const line = (title, of) => {
    const points = stops.map((each, i) => [each.step, of(each, i)]).filter((point) => Number.isFinite(point[1]));
    const series = [{ points, marks: true }];
    return points.length ? figure(title, plot({ label: title, series, width: room(ctx, 380), x: { title: t("time.step") }, onpick: ({ i }) => go(i) })) : null;
  };
  const [rows, columns] = [ctx.stack.text, ctx.keys].map((text) => stops[at].run.tokens(text).map(shown));
  const large = matrix({
    rows: rows.length, columns: columns.length, at: (i, j) => weights[at].at(head, i, j), label: `${t("time.step")} ${stops[at].name}`, rowLabels: rows,
    columnLabels: columns, scale: one, room: room(ctx, 500),
  });
  return [
    figure(t("time.head", { name: `${ctx.attention}, ${t("head")} ${head}` }), h("div", { class: "stops" }, small)),
    h(
      "div", { class: "plots" }, figure(`${t("time.step")} ${stops[at].name}`, large),
      h("div", {}, line(t("time.entropy"), (_, i) => mean(entropies[i].row(head))), line("log p", ({ run }) => run.answer.log_probability ?? NaN)),
    ),
  ];
}

/** The place of the token finally chosen, after each sublayer, at each step. */
function rankTable(ctx, stops, ranks) {
  const scale = scaleOf([Math.log10(ctx.model.vocabulary[ctx.stack.text])]);
  const points = ctx.run.answer.points[ctx.stack.name];
  const cells = (_, k) => points.map((_, i) => {
    if (ctx.position >= ranks[k].shape[1]) return h("td", {}, "–");
    const rank = ranks[k].at(i, ctx.position) + 1;
    return h("td", { style: { background: color(Math.log10(rank), scale), color: ink(Math.log10(rank), scale) } }, String(rank));
  });
  const kind = ranked(ctx.model, ctx.stack.name);
  const own = kind === "fill" && !ctx.run.answer.steps.some((each) => each.position === ctx.position && !each.given);
  return steps(t(`time.ranks.${own ? "own" : kind}`, { t: ctx.position }), points, stops, cells);
}
