/** Takes one number apart: computes it again from its parts, each of which leads to its own parts. */

import { button, fmt, h, shown } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { formula, receipt } from "regard/math-formulas.js";
import { computer, weight } from "regard/model-data-client.js";
import { extra, set, state } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { originOf } from "regard/views/number-origins.js";

const MANY = 64;
const SHOWN = 16;
const LATER = 300;

const parse = (cell) => {
  const [name, places = ""] = cell.split(/:(?=[\d,]*$)/);
  return { name, index: places.split(",").map(Number) };
};
const readable = (cell) => cell.replace(/:([\d,]*)$/, (_, places) => `[${places.replaceAll(",", ", ")}]`);
const shapeOf = (ctx, name) => ctx.model.weights[name] ?? ctx.run.answer.tensors[name.replace(".unrotated", "")]?.shape;

/** Lists the cells that led here, and the current one last. */
function trail(cell) {
  const kept = extra("trail").split("|");
  return kept.at(-1) === cell ? kept : [cell];
}

/** Selects the last cell of a trail. */
function visit(way) {
  const all = new URLSearchParams(state.x);
  all.set("trail", way.slice(-24).join("|"));
  set({ cell: way.at(-1), x: all.toString() }, { push: true });
}

/** What the last axes of a cell mean: ["head 0", "query 2 ▁chat"]. */
function places(ctx, cell) {
  const { name, index } = parse(cell);
  const axes = ctx.run.answer.tensors[name.replace(".unrotated", "")]?.axes ?? [];
  return axes.map((axis, n) => {
    const [kind, text] = axis.split(":");
    const tokens = kind === "token" ? ctx.run.answer.steps.flatMap((step) => [step.chosen, ...step.top]) : [];
    const token = text ? ctx.run.tokens(text)[index[n]] : tokens.find((each) => each.id === index[n]);
    return `${kind} ${index[n]}${token ? ` ${shown(token)}` : ""}`;
  });
}

/** Terms as a table with the running sum; of many, the largest and what the others come to. */
function table(ctx, origin, link) {
  const { terms } = origin;
  const few = terms.length <= MANY;
  const order = terms.map((_, n) => n);
  if (!few) order.sort((a, b) => Math.abs(terms[b].value) - Math.abs(terms[a].value));
  const longest = terms.reduce((a, b) => (b.factors.length > a.factors.length ? b : a)).factors;
  const single = longest.length === 1 && terms.length < 5;
  const name = ({ cell, name }, short) => (cell ? (single ? readable(cell) : short(cell)) : name);
  const token = (cell) => places(ctx, cell).at(-1)?.replace(/^\w+ /, "") ?? "";
  const along = /^(key|position) \d/.test(places(ctx, longest[0].cell ?? "").at(-1)); // a sum over tokens
  const label = (n) => (terms[n].factors.length < longest.length ? "b" : single || along ? name(terms[n].factors[0], token) : String(n));
  let running = 0;
  const row = (n) => {
    const { factors, value } = terms[n];
    running += value;
    return h("tr", { class: n === origin.mark ? "here" : "" }, h("th", { scope: "row" }, label(n)), longest.map((_, at) => h("td", {}, factors[at] ? link(factors[at]) : "")), h("td", {}, fmt(value, 5)), h("td", {}, fmt(running, 5)));
  };
  const columns = longest.map((factor) => name(factor, (cell) => parse(cell).name.replace(/^\w+\.layers\.\d+\./, "")));
  const head = ["", ...(single ? [t("micro.from")] : columns), origin.term || t(longest.length > 1 ? "micro.product" : "micro.value"), t("micro.running")];
  const body = h("tbody", {}, (few ? order : order.slice(0, SHOWN)).map(row));
  if (!few) {
    const rest = order.slice(SHOWN);
    const total = rest.reduce((all, n) => all + terms[n].value, 0);
    const more = rest.length > LATER ? [h("tr", {}, h("td", { colspan: 9 }, t("micro.more", { n: rest.length - LATER })))] : [];
    const last = h("tr", {}, h("th", {}, "…"), h("td", { colspan: longest.length }, button(t("micro.rest", { n: rest.length }), () => last.replaceWith(...rest.slice(0, LATER).map(row), ...more))), h("td", {}, fmt(total, 5)), h("td", {}, fmt(running + total, 5)));
    body.append(last);
  }
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("micro.how") }, h("table", { class: "terms" }, h("thead", {}, h("tr", {}, head.map((each) => h("th", { scope: "col" }, each)))), body));
}

/** Returns the cell that is shown if none is selected: the largest weight of the followed row. */
async function usual(ctx) {
  const row = (await ctx.run.tensor(`${ctx.attention}.weights`)).row(ctx.sel.head, ctx.position);
  return `${ctx.attention}.weights:${ctx.sel.head},${ctx.position},${row.indexOf(Math.max(...row))}`;
}

/** Offers cells to begin with: numbers that people ask about first. */
async function beginnings(ctx, looked) {
  const { run, sel, position, attention } = ctx;
  const step = run.answer.steps.find((each) => each.position === sel.t) ?? run.answer.steps[0];
  const name = ["logits", "fill.logits", "label.logits"].find((each) => run.has(each));
  const found = [["weight", await usual(ctx)], ["query", `${attention}.query:${sel.head},${position},0`], ["state", `${sel.stack}.states:${position},0`]];
  if (name) found.push(["logit", `${name}:${step ? [step.position, step.chosen.id] : run.answer.tensors[name].shape.length > 1 ? [position, 0] : 0}`]);
  return found.map(([key, cell]) => button(t(`micro.${key}`, { token: step ? shown(step.chosen) : ctx.model.labels[0] }), () => visit([cell]), { "aria-pressed": cell === looked, "data-key": `begin-${key}` }));
}

/** The number, its formula, its parts and its receipt. */
async function explained(ctx, cell, way) {
  const { name, index } = parse(cell);
  const shape = shapeOf(ctx, name);
  if (!shape) throw new Error(t("micro.noName", { name }));
  if (index.length !== shape.length || index.some((n, i) => !(n < shape[i]))) throw new Error(t("micro.noPlace", { name, shape: shape.join(" × ") }));
  const leaf = name in ctx.model.weights;
  const recorded = !name.endsWith(".unrotated");
  const [origin, tensor] = await Promise.all([leaf ? null : originOf(ctx, name, index), leaf ? weight(name, `${index[0]}:${index[0] + 1}`) : recorded ? ctx.run.tensor(name) : null]);
  const value = leaf ? tensor.data[index[1] ?? 0] : recorded ? tensor.at(...index) : origin.result;
  const link = (factor) => (factor.cell ? button(fmt(factor.value, 5), () => visit([...way, factor.cell]), { title: readable(factor.cell), "aria-label": `${fmt(factor.value, 5)}: ${readable(factor.cell)}`, class: `operand ${factor.leaf ? "leaf" : ""}` }) : fmt(factor.value, 5));
  const heading = [h("h2", { class: "cellname" }, h("code", {}, readable(cell)), " = ", h("b", {}, fmt(value, 6))), h("p", { class: "note" }, places(ctx, cell).join(" · "))];
  if (!origin) return [...heading, h("p", {}, t(leaf ? "micro.leaf" : "micro.unknown")), leaf ? button(t("micro.weights"), () => ctx.go("weights", { x: new URLSearchParams({ weight: name, cell: String(index) }).toString() }), { "data-key": "weights" }) : null];
  const steps = h("dl", {}, origin.steps.map(([key, number, address]) => h("div", {}, h("dt", {}, key), h("dd", {}, link({ value: number, cell: address })))));
  const half = origin.half || tensor?.half;
  const delta = origin.result === value ? 0 : Math.abs(origin.result - value);
  return [
    ...heading,
    figure(t("micro.how"), [formula(origin.formula), origin.terms.length ? table(ctx, origin, link) : "", steps], { name: cell, python: recorded ? ctx.python(name, `[${index.join(", ")}]`) : "" }),
    origin.note ? h("p", { class: "note" }, t(`micro.${origin.note}`)) : null,
    recorded ? receipt(`${t("micro.again")} ${fmt(origin.result, 7)} · ${computer()} ${fmt(value, 7)}${half ? ` (${t("micro.half")})` : ""}`, delta, (half ? 1e-2 : 1e-4) * Math.max(1, Math.abs(value))) : h("p", { class: "note" }, t("micro.unrecorded")),
  ];
}

export async function render(root, ctx) {
  const cell = ctx.sel.cell || (await usual(ctx));
  const way = trail(cell);
  const { patch, checkpoint } = ctx.run.answer.request;
  const notes = patch?.length || checkpoint ? ["micro.changed"] : [];
  const input = h("input", { value: cell, "aria-label": t("micro.cell"), spellcheck: "false", autocomplete: "off", "data-key": "micro-cell" });
  root.append(
    h("div", { class: "selects" }, h("span", { class: "note" }, t("micro.begin")), await beginnings(ctx, cell)),
    h("form", { class: "cellform", onsubmit: (event) => (event.preventDefault(), visit([input.value.trim()])) }, input, h("button", {}, t("micro.look"))),
    way.length > 1 ? h("nav", { class: "trail", "aria-label": t("micro.trail") }, way.slice(0, -1).map((each, n) => [button(readable(each), () => visit(way.slice(0, n + 1)), { "data-key": `trail-${n}` }), " ← "]), h("b", {}, readable(cell))) : "",
    ...notes.map((key) => h("p", { class: "warning" }, t(key))),
  );
  root.append(...(await explained(ctx, cell, way)).filter(Boolean));
}

/** Left and right: the next number of the same row. */
const beside = (step) => async (ctx) => {
  const { name, index } = parse(ctx.sel.cell || (await usual(ctx)));
  const last = index.at(-1) + step;
  if (last >= 0 && last < shapeOf(ctx, name)?.at(-1)) visit([`${name}:${[...index.slice(0, -1), last]}`]);
};
export const keys = { ArrowLeft: beside(-1), ArrowRight: beside(1) };
