/** Aligns source and target words by cross-attention, with both ways of assigning rows to tokens. */

import { field, pick, room } from "regard/axis-charts.js";
import { button, copy, download, fixed, h, percent, s, shown } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { matrix } from "regard/matrix-heatmap.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

const OPTIONS = { links: ["layer", "head", "all", "value", "rollout"], rows: ["before", "input"], unit: ["word", "token"], rule: ["argmax", "both", "least"] };

export async function render(root, ctx) {
  if (!("target" in ctx.model.embeddings)) return void root.append(h("p", {}, t("alignment.none")));
  const now = Object.fromEntries(Object.keys(OPTIONS).map((key) => [key, extra(key, OPTIONS[key][0])]));
  const least = Number(extra("least", "0.3"));
  const difference = ctx.which === "diff";
  const by = async (run) => {
    const found = await weights(ctx, run, now.links);
    return (unit) => grouped(found, run.tokens("source"), run.tokens("target"), now.rows === "before" ? 1 : 0, unit === "word");
  };
  const of = await by(ctx.run);
  const view = of(now.unit);
  if (difference) {
    const theirs = (await by(ctx.b))(now.unit);
    view.at = subtract(view.at, theirs.at);
    for (const side of ["rows", "columns"]) view[side] = view[side].map((each, i) => ({ ...each, name: each.name === theirs[side][i].name ? each.name : `${each.name} | ${theirs[side][i].name}` }));
  }
  const links = difference ? [] : linksOf(view.at, now.rule, least);
  root.append(
    h("p", { class: "warning" }, t("honest"), " ", t("honest.effect")),
    h(
      "div", { class: "selects" },
      Object.keys(OPTIONS).map((key) => pick(key, t(`alignment.${key}`), OPTIONS[key].map((name) => [name, t(`alignment.${key}.${name}`)]), now[key])),
      now.rule === "least" ? field("least", `≥ ${fixed(least)}`, least, { type: "range", min: 0.02, max: 1, step: 0.02 }) : null,
    ),
    h("p", { class: "note" }, t(`alignment.explain.${now.rows}`), " ", OPTIONS.links.indexOf(now.links) > 2 ? t(`alignment.explain.${now.links}`) : ""),
  );
  const linked = new Set(links.map(String));
  const isLinked = (i, j) => linked.has(`${i},${j}`);
  const { rows, columns, at } = view;
  const names = (list) => list.map((each) => each.name);
  const grid = matrix({
    rows: rows.length, columns: columns.length, at: (i, j) => at[i][j], label: t("alignment.matrix"), rowTitle: t("text.target"), columnTitle: t("text.source"),
    rowLabels: names(rows), columnLabels: names(columns), framed: isLinked, tell: (i, j) => (isLinked(i, j) ? t("alignment.linked") : ""),
    onpick: (i, j) => ctx.set({ t: rows[i].places[0], q: columns[j].places[0] }), room: room(ctx, 620),
  });
  const gold = goldOf(extra("gold"));
  root.append(h(
    "div", { class: "plots" },
    figure(
      t("alignment.matrix"), grid,
      { name: "alignment", python: ctx.python(`decoder.layers.${Math.min(ctx.sel.layer, ctx.model.stacks.decoder.layers - 1)}.cross_attention.weights`) },
    ),
    difference ? null : figure(t("alignment.drawing"), drawing(view, links, now.unit === "word" && gold.possible.size ? gold : null), { name: "links" }),
  ));
  if (difference) return;
  const words = of("word");
  const pairs = linksOf(words.at, now.rule, least).map(([i, j]) => [words.columns[j].word, words.rows[i].word]);
  outcome(root, pairs.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((pair) => pair.join("-")), gold);
}

const total = (numbers) => numbers.reduce((a, b) => a + b, 0);
/** Matrices are rows one after another; `inner` is the length of a's rows. */
function times(a, b, inner) {
  const columns = b.length / inner;
  const found = new Float64Array((a.length / inner) * columns);
  for (let n = 0; n < a.length; n++) {
    const [to, from] = [Math.floor(n / inner) * columns, (n % inner) * columns];
    for (let j = 0; j < columns; j++) found[to + j] += a[n] * b[from + j];
  }
  return found;
}
/** Averages a sublayer's weights with the stream that bypasses it. */
const past = (a, b) => a.map((x, i) => (x + b[i]) / 2);

/** [T x S]: how much each row of the decoder looks at each source token; rows add up to 1. */
async function weights({ model: { stacks }, sel }, run, kind) {
  const [sources, targets] = [run.tokens("source").length, run.tokens("target").length];
  const mean = (tensors) => {
    const found = new Float64Array(tensors[0].data.length / tensors[0].shape[0]);
    for (const { data, shape } of tensors) data.forEach((x, i) => (found[i % found.length] += x / shape[0] / tensors.length));
    return found;
  };
  const layers = (stack, attention) => run.tensors(Array.from({ length: stacks[stack].layers }, (_, layer) => `${stack}.layers.${layer}.${attention}.weights`));
  const own = (what) => run.tensor(`decoder.layers.${Math.min(sel.layer, stacks.decoder.layers - 1)}.cross_attention.${what}`);
  let found;
  if (kind === "rollout") {
    const [below, self, cross] = (await Promise.all([
      layers("encoder", "self_attention"), layers("decoder", "self_attention"), layers("decoder", "cross_attention"),
    ])).map((all) => all.map((each) => mean([each])));
    const memory = below.reduce(
      (flow, each) => past(flow, times(each, flow, sources)), new Float64Array(sources * sources).map((_, i) => Number(i % (sources + 1) === 0)),
    );
    found = self.reduce(
      (flow, each, layer) => past(past(flow, times(each, flow, targets)), times(cross[layer], memory, sources)), new Float64Array(targets * sources),
    );
  } else if (kind === "all") found = mean(await layers("decoder", "cross_attention"));
  else found = kind === "head" ? (await own("weights")).row(sel.head) : mean([await own(kind === "value" ? "value_weighted" : "weights")]);
  const sums = Array.from({ length: targets }, (_, i) => total(found.subarray(i * sources, (i + 1) * sources)) || 1);
  return (i, j) => found[i * sources + j] / sums[i];
}

/** Tokens by words: added up over a source word, averaged over a target word; a target token's row lies `shift` before it. */
function grouped(weights, source, target, shift, byWord) {
  const groups = (tokens, shift) => {
    const found = [];
    tokens.forEach((token, i) => {
      if (i < shift || (byWord && token.word < 0)) return;
      if (!byWord || found.at(-1)?.word !== token.word) found.push({ word: token.word, places: [], name: "" });
      found.at(-1).places.push(i - shift);
      found.at(-1).name += byWord ? shown(token).replace("▁", "") : shown(token);
    });
    return found.map((each) => ({ ...each, name: each.name || "▁" }));
  };
  const [rows, columns] = [groups(target, shift), groups(source, 0)];
  return {
    rows, columns,
    at: rows.map(({ places }) => columns.map((column) => total(places.map((a) => total(column.places.map((b) => weights(a, b))))) / places.length)),
  };
}

function subtract(ours, theirs) {
  if (ours.length !== theirs.length || ours[0]?.length !== theirs[0]?.length) throw new Error(t("differentShapes"));
  return theirs.map((row, i) => row.map((x, j) => x - ours[i][j]));
}

/** [row, column] of each link: the best of a row, the best both ways, or all above a share. */
function linksOf(at, rule, least) {
  const top = (numbers) => numbers.indexOf(Math.max(...numbers));
  const best = at.map(top);
  const back = (at[0] ?? []).map((_, j) => top(at.map((row) => row[j])));
  return at.flatMap((row, i) => row.flatMap((x, j) => ((rule === "least" ? x >= least : best[i] === j && (rule === "argmax" || back[j] === i)) ? [[i, j]] : [])));
}

/** Pharaoh: i-j is sure, ipj possible. */
function goldOf(text) {
  const found = text.split(/\s+/).filter(Boolean).map((each) => /^(\d+)([-p])(\d+)$/.exec(each));
  const keys = (test) => new Set(found.filter(test).map((each) => `${Number(each[1])}-${Number(each[3])}`));
  return { sure: keys((each) => each?.[2] === "-"), possible: keys(Boolean), wrong: found.filter((each) => !each).length };
}

/** Source words at the left, target words at the right, a line for each link. */
function drawing({ rows, columns, at }, links, gold) {
  const count = Math.max(rows.length, columns.length);
  const step = count > 40 ? 14 : 22;
  const y = (i) => i * step + 14;
  const key = ([i, j]) => `${columns[j].word}-${rows[i].word}`;
  const made = new Set(links.map(key));
  const line = ([i, j], stroke, width, dash) => s(
    "path", { d: `M118 ${y(j)}C160 ${y(j)} 160 ${y(i)} 202 ${y(i)}`, fill: "none", stroke, "stroke-width": width, "stroke-dasharray": dash },
  );
  const missed = gold ? rows.flatMap((_, i) => columns.map((_, j) => [i, j])).filter((each) => gold.sure.has(key(each)) && !made.has(key(each))) : [];
  const words = (list, x, anchor) => list.map((each, i) => s(
    "text", { x, y: y(i) + 4, "text-anchor": anchor, fill: "var(--ink)", class: "number" }, [...each.name].slice(0, 16).join(""),
  ));
  const height = count * step + 6;
  const wrong = (each) => gold && !gold.possible.has(key(each));
  const lines = links.map((each) => (wrong(each) ? line(each, "var(--bad)", 2, "7 3") : line(each, "var(--accent)", 0.8 + 3.2 * at[each[0]][each[1]])));
  const picture = s(
    "svg", { width: 320, height, role: "img", "aria-label": links.map(([i, j]) => `${columns[j].name} – ${rows[i].name}`).join(", ") },
    words(columns, 112, "end"), words(rows, 208, "start"), lines, missed.map((each) => line(each, "var(--gold)", 2, "2 3")),
  );
  return [h("div", { class: "scroll" }, picture), gold ? h("p", { class: "note" }, t("alignment.key")) : null];
}

/** The links as text, and how they compare with those of people. */
function outcome(root, links, gold) {
  const text = links.join(" ");
  const take = button(t("alignment.copy"), () => copy(text, take));
  const [sure, possible] = [gold.sure, gold.possible].map((set) => links.filter((each) => set.has(each)).length);
  const aer = 1 - (sure + possible) / (links.length + gold.sure.size || 1);
  const share = (a, b) => percent(b ? a / b : 0);
  root.append(
    h(
      "p", { class: "selects" }, h("span", {}, t("alignment.pharaoh")), h("code", { class: "pharaoh" }, text), take,
      button(t("alignment.save"), () => download("alignment.txt", text + "\n", "text/plain")),
    ),
    h(
      "label", { class: "field" }, h("span", {}, t("alignment.gold")),
      h(
        "textarea",
        { rows: 2, value: extra("gold"), placeholder: "0-0 1-2 2p1", "data-key": "gold", onchange: (event) => setExtra({ gold: event.target.value.trim() }) },
      ),
    ),
    gold.possible.size ? h(
      "p", { class: "receipt", role: "status" },
      t("alignment.scores", { aer: share(aer, 1), precision: share(possible, links.length), recall: share(sure, gold.sure.size) }),
    ) : "",
    gold.wrong ? h("p", { class: "warning" }, t("alignment.wrong", { n: gold.wrong })) : "",
  );
}
