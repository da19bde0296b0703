/** Which word looked at which: links from cross-attention, with both ways of counting rows. */

import { button, choice, copy, download, fixed, h, percent, s, shown } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { matrix } from "regard/matrix.js";
import { room } from "regard/plot.js";
import { extra, setExtra } from "regard/state.js";
import { t } from "regard/strings.js";

const KINDS = ["head", "layer", "all", "value", "rollout"];

export async function render(root, ctx) {
  const kind = extra("links", "layer");
  const before = extra("rows", "before") === "before";
  const [unit, rule] = [extra("unit", "word"), extra("rule", "argmax")];
  const least = Number(extra("least", "0.3"));
  const pair = async (run) => ({ run, rows: normalised(await weights(ctx, run, kind)) });
  const shownRun = await pair(ctx.run);
  const cut = (each, by) => grouped(each.rows, each.run.tokens("source"), each.run.tokens("target"), before, by);
  const [view, words] = [cut(shownRun, unit), cut(shownRun, "word")];
  if (ctx.which === "diff") subtract(view, cut(await pair(ctx.b), unit));
  const links = ctx.which === "diff" ? [] : linksOf(view.at, rule, least);
  const pharaoh = linksOf(words.at, rule, least).map(([i, j]) => `${words.columns[j].word}-${words.rows[i].word}`).sort(byNumbers).join(" ");
  const change = (key) => (value) => setExtra({ [key]: value });
  const options = (key, names) => names.map((name) => [name, t(`alignment.${key}.${name}`)]);
  root.append(
    h("p", { class: "warning" }, t("honest")),
    h(
      "div",
      { class: "selects" },
      choice(t("alignment.from"), options("links", KINDS), kind, change("links")),
      choice(t("alignment.rows"), options("rows", ["before", "input"]), before ? "before" : "input", change("rows")),
      choice(t("alignment.unit"), options("unit", ["word", "token"]), unit, change("unit")),
      choice(t("alignment.rule"), options("rule", ["argmax", "both", "least"]), rule, change("rule")),
      rule === "least" ? h("label", { class: "choice" }, h("span", {}, `≥ ${fixed(least)}`), h("input", { type: "range", min: 0.02, max: 1, step: 0.02, value: String(least), "data-key": "least", oninput: (event) => setExtra({ least: event.target.value }) })) : null,
    ),
    h("p", { class: "note" }, t(`alignment.explain.${before ? "before" : "input"}`), " ", kind === "rollout" || kind === "value" ? t(`alignment.explain.${kind}`) : ""),
  );
  pictures(root, ctx, view, links, goldOf(extra("gold")), unit);
  if (ctx.which !== "diff") outcome(root, pharaoh);
}

/** [T][S]: how much each row of the decoder looks at each source token. */
async function weights({ model, sel }, run, kind) {
  const [above, below] = [model.stacks.decoder.layers, model.stacks.encoder.layers];
  const layer = Math.min(sel.layer, above - 1);
  const ask = async (names) => (await run.tensors(names)).map(meanOfHeads);
  const layers = (stack, count, rest) => Array.from({ length: count }, (_, l) => `${stack}.layers.${l}.${rest}`);
  const cross = `decoder.layers.${layer}.cross_attention`;
  if (kind === "head") {
    const tensor = await run.tensor(`${cross}.weights`);
    return table(tensor.shape[1], tensor.shape[2], (i, j) => tensor.at(sel.head, i, j));
  }
  if (kind === "value" || kind === "layer") return (await ask([`${cross}.${kind === "value" ? "value_weighted" : "weights"}`]))[0];
  const crossed = await ask(layers("decoder", above, "cross_attention.weights"));
  if (kind === "all") return table(crossed[0].length, crossed[0][0].length, (i, j) => crossed.reduce((sum, each) => sum + each[i][j], 0) / above);
  const [own, self] = await Promise.all([ask(layers("encoder", below, "self_attention.weights")), ask(layers("decoder", above, "self_attention.weights"))]);
  const memory = own.reduce((flow, each) => half(flow, times(each, flow)), table(own[0].length, own[0].length, (i, j) => Number(i === j)));
  return self.reduce((flow, each, l) => half(half(flow, times(each, flow)), times(crossed[l], memory)), crossed[0].map((row) => row.map(() => 0)));
}

const table = (rows, columns, at) => Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => at(i, j)));
const times = (a, b) => table(a.length, b[0].length, (i, j) => a[i].reduce((sum, x, k) => sum + x * b[k][j], 0));
/** Half of the stream goes past a sublayer (Abnar & Zuidema, 2020). */
const half = (a, b) => a.map((row, i) => row.map((x, j) => (x + b[i][j]) / 2));
const meanOfHeads = (tensor) => table(tensor.shape[1], tensor.shape[2], (i, j) => Array.from({ length: tensor.shape[0] }, (_, head) => tensor.at(head, i, j)).reduce((a, b) => a + b) / tensor.shape[0]);
const normalised = (rows) => rows.map((row) => { const sum = row.reduce((a, b) => a + b, 0) || 1; return row.map((x) => x / sum); });
const byNumbers = (a, b) => a.split("-")[0] - b.split("-")[0] || a.split("-")[1] - b.split("-")[1];

/** Tokens by words: added up over a source word, averaged over a target word. */
function grouped(rows, source, target, before, unit) {
  const groups = (tokens, shift) => {
    const found = [];
    tokens.forEach((token, i) => {
      const place = i - shift;
      if (place < 0 || (unit === "word" && token.word < 0)) return;
      const last = found.at(-1);
      if (unit === "word" && last?.word === token.word) last.places.push(place), (last.name += shown(token));
      else found.push({ word: token.word, places: [place], token: i, name: shown(token) });
    });
    for (const each of found) if (unit === "word") each.name = each.name.replaceAll("▁", "");
    return found;
  };
  const [down, across] = [groups(target, before ? 1 : 0), groups(source, 0)];
  const at = down.map(({ places }) => across.map((word) => places.reduce((sum, i) => sum + word.places.reduce((part, j) => part + rows[i][j], 0), 0) / places.length));
  return { rows: down, columns: across, at };
}

function subtract(view, other) {
  if (view.at.length !== other.at.length || view.columns.length !== other.columns.length) throw new Error(t("differentShapes"));
  view.at = other.at.map((row, i) => row.map((x, j) => x - view.at[i][j]));
}

/** [row, column] of each link: the best of a row, the best both ways, or all above a share. */
function linksOf(at, rule, least) {
  const top = (numbers) => numbers.indexOf(Math.max(...numbers));
  return at.flatMap((row, i) => row.flatMap((x, j) => ((rule === "least" ? x >= least : top(row) === j && (rule === "argmax" || top(at.map((each) => each[j])) === i)) ? [[i, j]] : [])));
}

/** Pharaoh: i-j is sure, ipj possible. */
function goldOf(text) {
  const found = text.split(/\s+/).filter(Boolean).map((each) => /^(\d+)([-p?])(\d+)$/.exec(each));
  const keys = (list) => new Set(list.map((each) => `${Number(each[1])}-${Number(each[3])}`));
  return { sure: keys(found.filter((each) => each?.[2] === "-")), possible: keys(found.filter(Boolean)), wrong: found.filter((each) => !each).length };
}

function pictures(root, ctx, view, links, gold, unit) {
  const { rows, columns, at } = view;
  const linked = new Set(links.map(String));
  const pick = (i, j) => ctx.set({ t: rows[i].places[0], q: columns[j].token });
  const mark = { row: rows.findIndex((each) => each.places.includes(ctx.sel.t)), column: -1 };
  const grid = matrix({ rows: rows.length, columns: columns.length, at: (i, j) => at[i][j], label: t("alignment.matrix"), rowTitle: t("text.target"), columnTitle: t("text.source"), rowLabels: rows.map((each) => each.name), columnLabels: columns.map((each) => each.name), scale: { signed: ctx.which === "diff", high: 1 }, mark, framed: (i, j) => linked.has(`${i},${j}`), tell: (i, j) => (linked.has(`${i},${j}`) ? t("alignment.linked") : ""), onpick: pick, room: room(ctx, 620) });
  root.append(h("div", { class: "plots" }, figure(t("alignment.matrix"), grid, { name: "alignment" }), links.length ? figure(t("alignment.drawing"), drawing(view, links, unit === "word" ? gold : null), { name: "links" }) : null));
}

/** Source words at the left, target words at the right, a line for each link. */
function drawing({ rows, columns, at }, links, gold) {
  const step = 22;
  const y = (i) => i * step + 16;
  const short = (name) => ([...name].length > 15 ? [...name].slice(0, 14).join("") + "…" : name);
  const key = (i, j) => `${columns[j].word}-${rows[i].word}`;
  const made = new Set(links.map(([i, j]) => key(i, j)));
  const line = (i, j, props) => s("path", { d: `M118 ${y(j) - 4}C160 ${y(j) - 4} 160 ${y(i) - 4} 202 ${y(i) - 4}`, fill: "none", ...props });
  const missed = gold?.sure.size ? rows.flatMap((row, i) => columns.flatMap((column, j) => (gold.sure.has(key(i, j)) && !made.has(key(i, j)) ? [[i, j]] : []))) : [];
  const wrong = ([i, j]) => gold?.possible.size && !gold.possible.has(key(i, j));
  const word = (each, i, x, anchor) => s("text", { x, y: y(i), "text-anchor": anchor, fill: "var(--ink)", class: "number" }, short(each.name));
  const height = Math.max(rows.length, columns.length) * step + 6;
  const picture = s("svg", { width: 320, height, viewBox: `0 0 320 ${height}`, role: "img", "aria-label": [...links.map(([i, j]) => `${columns[j].name} – ${rows[i].name}`)].join(", ") }, columns.map((each, j) => word(each, j, 112, "end")), rows.map((each, i) => word(each, i, 208, "start")), links.map(([i, j]) => line(i, j, { stroke: wrong([i, j]) ? "var(--bad)" : "var(--accent)", "stroke-width": 0.8 + 3.2 * at[i][j], "stroke-dasharray": wrong([i, j]) ? "7 3" : null })), missed.map(([i, j]) => line(i, j, { stroke: "var(--gold)", "stroke-width": 1.5, "stroke-dasharray": "2 3" })));
  return [h("div", { class: "scroll" }, picture), gold?.possible.size ? h("p", { class: "note" }, t("alignment.key")) : null];
}

/** The links as text, and how they compare with those of people. */
function outcome(root, pharaoh) {
  const take = button(t("alignment.copy"), () => copy(pharaoh, take));
  const box = h("textarea", { rows: 2, value: extra("gold"), placeholder: "0-0 1-2 2p1", "data-key": "gold", onchange: (event) => setExtra({ gold: event.target.value.trim() }) });
  const gold = goldOf(extra("gold"));
  const found = pharaoh.split(" ").filter(Boolean);
  const [sure, possible] = [gold.sure, gold.possible].map((set) => found.filter((each) => set.has(each)).length);
  const scores = { aer: percent(1 - (sure + possible) / (found.length + gold.sure.size || 1)), precision: percent(possible / (found.length || 1)), recall: percent(sure / (gold.sure.size || 1)) };
  root.append(
    h("p", { class: "selects" }, h("span", {}, t("alignment.pharaoh")), h("code", { class: "pharaoh" }, pharaoh), take, button(t("alignment.save"), () => download("alignment.txt", pharaoh + "\n", "text/plain"))),
    h("label", { class: "field" }, h("span", {}, t("alignment.gold")), box),
    gold.possible.size ? h("p", { class: "receipt", role: "status" }, t("alignment.scores", scores)) : "",
    gold.wrong ? h("p", { class: "error" }, t("alignment.wrong", { n: gold.wrong })) : "",
  );
}
