/** Shows all heads of the model at once: where they look, and what changes without them. */

import { scaleOf, scalesOfRows } from "regard/color-scales.js";
import { button, choice, enlarged, fixed, h, tick } from "regard/dom-elements.js";
import { figure } from "regard/figure-with-exports.js";
import { legend, thumbnail } from "regard/matrix-heatmap.js";
import { extra, setExtra } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";
import { arranged, brief, chooseColouring, colouring, described, effects, groups, headCount, kinds, measuring, shownRuns, single } from "regard/views/attention-head-facts.js";

const FEW = 48;
const SIZE = 66; // in pixels, before it is enlarged
const range = (size) => Array.from({ length: size }, (_, i) => i);
const nameOf = (kind, layer) => `${kind.stack}.layers.${layer}.${kind.kind}.weights`;

/** The heads of a layer in numbers; of two runs, what the second has more. */
async function load(ctx, kind, layer, { words, hide }) {
  const parts = await Promise.all(
    shownRuns(ctx).map(async (run) => {
      const tensor = await run.tensor(nameOf(kind, layer));
      const [rows, columns] = [kind.text, kind.keys].map((text) => groups(run.tokens(text), words, hide));
      const special = columns.map(([first]) => run.tokens(kind.keys)[first].special);
      return range(tensor.shape[0]).map((head) => {
        const picture = arranged(tensor, head, rows, columns, hide);
        return { kind, layer, head, ...picture, ...described(picture, kind, special) };
      });
    }),
  );
  const [ours, theirs] = parts;
  return ours.map((a, head) => {
    const b = theirs?.[head];
    if (!b) return a;
    if (a.rows !== b.rows || a.columns !== b.columns) throw new Error(t("differentShapes"));
    return { ...a, data: b.data.map((x, i) => x - a.data[i]), entropy: b.entropy - a.entropy, distance: b.distance - a.distance, tag: a.tag === b.tag ? a.tag : `${a.tag} ${b.tag}` };
  });
}

/** The numbers of a picture on a scale from 0 to 1, where `how` says what 1 is: itself, the largest, or that of each row. */
function scaled({ rows, columns, data }, { signed }, how) {
  const at = (i, j) => data[i * columns + j];
  if (how === "one") return at;
  const scales = how === "row" ? scalesOfRows(rows, columns, at, signed) : Array(rows).fill(scaleOf(data, signed));
  return (i, j) => at(i, j) / scales[i].high;
}

/** The picture of a head that leads to it; its frame is as thick as its effect, the largest being `most`. */
function tile(ctx, { kind, layer, head, rows, columns, data, entropy, tag }, scale, most) {
  const found = effects(ctx, kind, layer, head);
  const [value, words] = found ? brief(found) : ["", ""];
  const width = 1 + (5 * Math.abs(single(found) ?? 0)) / most;
  const side = SIZE * enlarged();
  const canvas = thumbnail(rows, columns, scaled({ rows, columns, data }, scale, scale.how), scale, side);
  const cells = canvas.toSvg;
  canvas.style.outlineWidth = `${width}px`;
  canvas.toSvg = () => [{ kind: "frame", x: -width / 2, y: -width / 2, w: side + width, h: side + width, stroke: getComputedStyle(canvas).outlineColor, width }, ...cells()];
  const tagged = tag.split(" ").map((each) => (each ? t(`att.tag.${each}`) : "–")).join(" → ");
  const place = { stack: kind.stack, kind: kind.kind, layer, head };
  const here = Object.entries(place).every(([key, value]) => ctx.sel[key] === value);
  const label = [`${t("layer")} ${layer}`, `${t("head")} ${head}`, `${t("att.entropy")} ${fixed(entropy, 2)}`, tagged, found ? `${t("att.effect")} ${value}${words}` : ""].filter(Boolean).join(", ");
  return button([h("span", { class: "frame" }, canvas), h("span", {}, `${layer}.${head} `, h("i", {}, `H ${fixed(entropy, 2)} `)), h("span", { class: "tag" }, `${tagged} `), found && h("span", {}, h("b", {}, value), h("bdi", {}, words))], () => ctx.go("head", place), { class: `tile ${here ? "here" : ""}`, title: label, "data-key": `tile-${kind.site}-${layer}-${head}` });
}

/** Does something when an element comes near the window. */
function later(element, act) {
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    act().catch((error) => element.replaceChildren(h("p", { class: "error" }, error.message)));
  }, { rootMargin: "300px" });
  observer.observe(element);
}

export async function render(root, ctx) {
  const how = { sort: extra("sort", "place"), words: extra("words") === "1", hide: extra("hide") === "1" };
  const [all, heads, scale] = [kinds(ctx.model), ctx.model.model.heads, { signed: ctx.which === "diff", high: 1, how: colouring(Math.max(...Object.values(ctx.run.answer.tokens).map((each) => each.length))) }];
  const size = (kind, layer, head) => Math.abs(single(effects(ctx, kind, layer, head)) ?? 0);
  const ranks = { entropy: (card) => card.entropy, distance: (card) => -card.distance, effect: (card) => -size(card.kind, card.layer, card.head) };
  const places = all.flatMap((kind) => range(kind.layers).map((layer) => [kind, layer]));
  const known = new Map();
  const learn = async (kind, layer) => void known.set(nameOf(kind, layer), await load(ctx, kind, layer, how));
  const lazy = headCount(ctx.model) > FEW && how.sort === "place";
  await Promise.all(places.filter(([kind, layer]) => !lazy || shownRuns(ctx).every((run) => run.cache.has(nameOf(kind, layer)))).map((place) => learn(...place)));
  const holder = h("div", { class: "atlas" });
  const pictures = (kind, most) => {
    const draw = (cards) => cards.map((card) => tile(ctx, card, scale, most));
    const cards = (layer) => known.get(nameOf(kind, layer));
    if (how.sort in ranks) return h("div", { class: "tiles wrap" }, draw(range(kind.layers).flatMap(cards).sort((a, b) => ranks[how.sort](a) - ranks[how.sort](b))));
    return h("div", { class: "scroll" }, range(kind.layers).map((layer) => {
      const row = h("div", { class: "tiles" });
      const fill = () => row.replaceChildren(h("span", { class: "note" }, `${t("layer")} ${layer}`), ...draw(cards(layer)));
      if (cards(layer)) fill();
      else later(row, async () => (await learn(kind, layer), fill()));
      return row;
    }));
  };
  const paint = () => {
    const from = performance.now();
    const most = Math.max(1e-9, ...places.flatMap((place) => range(heads).map((head) => size(...place, head))));
    holder.replaceChildren(...all.map((kind) => figure(`${t(`stack.${kind.stack}`)} · ${t(`kind.${kind.kind}`)}: ${t("att.looks", { query: t(`text.${kind.text}`), key: t(`text.${kind.keys}`) })}`, pictures(kind, most), { name: kind.site, python: ctx.python(nameOf(kind, 0)) })));
    holder.dataset.ms = (performance.now() - from).toFixed(1);
  };
  const options = ["words", "hide"];
  root.append(
    h("div", { class: "selects" }, choice(t("att.sort"), ["place", "entropy", "effect", "distance"].map((each) => [each, t(`att.sort.${each}`)]), how.sort, (sort) => setExtra({ sort })), chooseColouring(scale.how), options.map((key) => tick(t(`att.${key}`), how[key], (on) => setExtra({ [key]: on ? 1 : 0 }))), measuring(ctx, paint)),
    h("p", { class: "note" }, t("att.rows"), " ", legend(scale, scale.how === "one" ? "" : t(`colour.${scale.how}End`)), " ", t(`att.frames.${ctx.model.task}`), ctx.which === "diff" && ctx.model.task !== "embed" ? ` ${t("att.framesDiff")}` : ""),
    h("details", { class: "note" }, h("summary", {}, t("att.rules")), t("att.rulesText")),
    ...options.filter((key) => how[key]).map((key) => h("p", { class: "warning" }, t(`att.${key}Note`))),
    holder,
  );
  paint();
}
