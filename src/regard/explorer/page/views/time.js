/** One sentence through the steps of training. */

import { color, scaleOf } from "regard/colors.js";
import { run as runModel } from "regard/data.js";
import { button, fixed, h, percent, shown, tick } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { mean } from "regard/maths.js";
import { matrix, thumbnail } from "regard/matrix.js";
import { plot, room } from "regard/plot.js";
import { extra, request, setExtra, state } from "regard/state.js";
import { t } from "regard/strings.js";

/** The last drawing of each side: an older one stops. @type {Record<string, number>} */
const turns = {};

export async function render(root, ctx) {
  const list = ctx.model.checkpoints ?? [];
  if (!list.length) return void root.append(h("p", {}, t("time.none")), h("pre", {}, "regard train ... --training.history 8"));
  const turn = (turns[ctx.which] = (turns[ctx.which] ?? 0) + 1);
  const progress = h("progress", { max: list.length + 1, value: 0, "aria-label": t("time.progress") });
  const status = h("p", { class: "note", role: "status", "aria-busy": "true" }, t("time.progress"), " ", progress);
  root.append(status);
  const work = gather(ctx, [...list, { id: null, step: null, scores: {} }], (done) => (progress.value = done), () => turns[ctx.which] === turn).then(
    async (stops) => {
      if (!stops) return;
      const parts = h("div", {});
      await draw(parts, ctx, stops);
      status.replaceWith(parts);
    },
    (error) => status.replaceWith(h("p", { class: "error", role: "alert" }, error.offline ? t("offlineMissing") : error.message)),
  );
  await Promise.race([work, new Promise((done) => setTimeout(done, 150))]);
}

/** A run of each step, one after another; null when nobody waits for them any more. */
async function gather(ctx, list, tell, wanted) {
  const asked = request(state, ctx.which === "a" ? "" : state.b);
  if (extra("forced") && ctx.model.task === "translate") Object.assign(asked, { target: ctx.run.answer.text, prefix: null });
  const stops = [];
  for (const each of list) {
    if (!wanted()) return null;
    stops.push({ ...each, name: each.step === null ? t("time.final") : String(each.step), run: await runModel({ ...asked, checkpoint: each.id }) });
    tell(stops.length);
  }
  const last = stops.at(-1);
  last.step = Math.max(...stops.slice(0, -1).map((each) => each.step)) + 1;
  return stops;
}

async function draw(root, ctx, stops) {
  const found = stops.findIndex((each) => String(each.id) === extra("step"));
  const at = found < 0 ? stops.length - 1 : found;
  const go = (i) => setExtra({ step: String(stops[i].id) });
  const here = stops[at];
  root.append(
    h(
      "div",
      { class: "selects" },
      h("label", { class: "choice" }, h("span", {}, `${t("time.step")} ${here.name}`), h("input", { type: "range", min: 0, max: stops.length - 1, value: String(at), "data-key": "time-step", oninput: (event) => go(Number(event.target.value)) })),
      ctx.model.task === "translate" ? tick(t("time.forced"), Boolean(extra("forced")), (value) => setExtra({ forced: value ? "1" : "" })) : null,
      here.id ? button(t("time.compare"), () => ctx.set({ b: JSON.stringify({ checkpoint: here.id }), ab: "both", view: "atlas" })) : null,
    ),
    outputs(ctx, stops, at, go),
  );
  await heads(root, ctx, stops, at, go);
  const parts = ctx.run.has(`${ctx.stack.name}.lens.rank`) ? [await ranks(ctx, stops)] : [];
  if (ctx.model.model.positions === "learned") parts.push(await learned(ctx, stops));
  root.append(...parts);
}

/** What each step says, and what it would say at the followed position. */
function outputs(ctx, stops, at, go) {
  const scores = [...new Set(stops.flatMap((each) => Object.keys(each.scores ?? {})))];
  const best = (each) => {
    const step = each.run.answer.steps.find((one) => one.position === ctx.sel.t);
    return step ? step.top.slice(0, 2).map((one) => `${shown(one)} ${percent(one.probability)}`).join(", ") : "–";
  };
  const label = (each) => each.run.answer.text || each.run.answer.labels?.map((one) => Object.entries(one.probabilities).sort((x, y) => y[1] - x[1])[0][0]).join(" ") || "";
  const row = (each, i) => h("tr", { class: i === at ? "marked" : "" }, h("th", { scope: "row" }, button(each.name, () => go(i), { "aria-pressed": i === at, "data-key": `step-${i}` })), scores.map((name) => h("td", {}, name in (each.scores ?? {}) ? fixed(each.scores[name], 2) : "–")), h("td", {}, fixed(each.run.answer.log_probability ?? NaN, 2)), h("td", {}, best(each)), h("td", { class: "words", dir: "auto" }, label(each)));
  const heads = [t("time.step"), ...scores, "log p", t("time.best", { t: ctx.sel.t }), t("time.output")];
  return figure(t("time.outputs"), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, stops.map(row)))));
}

/** The selected head at every step: small pictures, entropy, and one large. */
async function heads(root, ctx, stops, at, go) {
  const { sel } = ctx;
  const tensors = await Promise.all(stops.map((each) => each.run.tensors([`${ctx.attention}.weights`, `${ctx.attention}.entropy`])));
  const small = stops.map((each, i) => {
    const weights = tensors[i][0];
    return h("button", { type: "button", class: "stop", "aria-pressed": i === at, "data-key": `stop-${i}`, "aria-label": `${t("time.step")} ${each.name}`, onclick: () => go(i) }, thumbnail(weights.shape[1], weights.shape[2], (a, b) => weights.at(sel.head, a, b), { signed: false, high: 1 }, 84), each.name);
  });
  const points = (of) => stops.map((each, i) => [each.step, of(each, i)]);
  const names = stops.map((each) => each.name);
  const line = (title, of) => figure(title, plot({ label: title, series: [{ points: points(of), names, marks: true }], width: room(ctx, 420), height: 200, x: { title: t("time.step") }, onpick: (_, i) => go(i) }));
  const weights = tensors[at][0];
  const labels = (text) => stops[at].run.tokens(text).map(shown);
  root.append(
    figure(t("time.head", { name: `${ctx.attention}, ${t("head")} ${sel.head}` }), h("div", { class: "stops" }, small)),
    h("div", { class: "plots" }, figure(`${t("time.step")} ${stops[at].name}`, matrix({ rows: weights.shape[1], columns: weights.shape[2], at: (i, j) => weights.at(sel.head, i, j), label: `${ctx.attention} ${stops[at].name}`, rowLabels: labels(ctx.stack.text), columnLabels: labels(ctx.keys), scale: { signed: false, high: 1 }, room: room(ctx, 480) }), { python: ctx.python(`${ctx.attention}.weights`, `[${sel.head}]`) }), line(t("time.entropy"), (_, i) => mean(tensors[i][1].row(sel.head))), stops.some((each) => Number.isFinite(each.run.answer.log_probability)) ? line("log p", (each) => each.run.answer.log_probability ?? NaN) : null),
  );
}

/** The place of the token finally chosen, after each sublayer, at each step. */
async function ranks(ctx, stops) {
  const name = ctx.stack.name;
  const tensors = await Promise.all(stops.map((each) => each.run.tensor(`${name}.lens.rank`)));
  const points = ctx.run.answer.points[name];
  const scale = scaleOf([Math.log10(ctx.model.vocabulary[ctx.stack.text] + 1)]);
  const cell = (tensor, i) => {
    const rank = ctx.position < tensor.shape[1] ? tensor.at(i, ctx.position) + 1 : NaN;
    return h("td", { style: { borderBottom: `4px solid ${color(Math.log10(rank), scale)}` } }, Number.isNaN(rank) ? "–" : String(rank));
  };
  return figure(t("time.ranks", { t: ctx.position }), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["", ...points].map((point) => h("th", { scope: "col" }, point)))), h("tbody", {}, stops.map((each, k) => h("tr", {}, h("th", { scope: "row" }, each.name), points.map((_, i) => cell(tensors[k], i))))))));
}

/** The learned vectors of the sentence's positions at each step. */
async function learned(ctx, stops) {
  const tensors = await Promise.all(stops.map((each) => each.run.tensor(`${ctx.model.embeddings[ctx.stack.text]}.positions`)));
  const scale = scaleOf(tensors.flatMap((each) => Array.from(each.data)), true);
  return figure(t("time.positions"), h("div", { class: "stops" }, stops.map((each, i) => h("span", { class: "stop" }, thumbnail(tensors[i].shape[0], tensors[i].shape[1], (a, b) => tensors[i].at(a, b), scale, 84), each.name))));
}
