/** All heads at a glance: where they look, and what happens without them. */

import { button, choice, fixed, h, shown, tick } from "regard/dom.js";
import { figure } from "regard/figure.js";
import { legend, thumbnail } from "regard/matrix.js";
import { extra, setExtra } from "regard/state.js";
import { t } from "regard/strings.js";
import { arranged, described, effect, groups, headCount, kinds, measuring, shownRuns } from "regard/views/heads.js";

const FEW = 48;
const SIZE = 66;

/** Loads layers and keeps what is drawn of their heads. */
class Atlas {
  constructor(ctx) {
    this.ctx = ctx;
    this.sort = extra("sort", "place");
    this.words = extra("words") === "1";
    this.hide = extra("hide") === "1";
    this.runs = shownRuns(ctx);
    this.scale = { signed: this.runs.length > 1, high: 1 };
    this.layers = new Map();
    this.plans = new Map();
  }

  name(kind, layer) {
    return `${kind.stack}.layers.${layer}.${kind.kind}.weights`;
  }

  /** Which tokens are rows and columns of a kind, in one run. */
  plan(run, kind) {
    const key = `${run.answer.run} ${kind.site}`;
    if (!this.plans.has(key)) {
      const [rows, columns] = [kind.text, kind.keys].map((text) => groups(run.tokens(text), this.words, this.hide));
      this.plans.set(key, { rows, columns, special: columns.map(([first]) => run.tokens(kind.keys)[first]?.special) });
    }
    return this.plans.get(key);
  }

  async load(kind, layer) {
    const name = this.name(kind, layer);
    const tensors = await Promise.all(this.runs.map((run) => run.tensor(name)));
    this.layers.set(name, Array.from({ length: this.ctx.model.model.heads }, (_, head) => this.card(kind, layer, head, tensors)));
  }

  /** A head in numbers; of two runs, what the second has more. */
  card(kind, layer, head, tensors) {
    const parts = this.runs.map((run, i) => {
      const { rows, columns, special } = this.plan(run, kind);
      const picture = arranged(tensors[i], head, rows, columns, this.hide);
      return { picture, ...described(picture, kind, special) };
    });
    const [a, b] = parts;
    if (!b) return { kind, layer, head, ...a };
    if (a.picture.rows !== b.picture.rows || a.picture.columns !== b.picture.columns) throw new Error(t("differentShapes"));
    const data = b.picture.data.map((x, i) => x - a.picture.data[i]);
    return { kind, layer, head, picture: { ...b.picture, data }, entropy: b.entropy - a.entropy, distance: b.distance - a.distance, tag: a.tag === b.tag ? a.tag : [a.tag, b.tag] };
  }

  /** The picture of a head that leads to it. */
  tile(card, most) {
    const { kind, layer, head, picture, entropy, tag } = card;
    const { rows, columns, data } = picture;
    const done = effect(this.ctx, kind, layer, head);
    const tagged = [tag].flat().map((each) => (each ? t(`att.tag.${each}`) : "–")).join(" → ");
    const canvas = thumbnail(rows, columns, (i, j) => data[i * columns + j], this.scale, SIZE);
    if (done) canvas.style.outlineWidth = `${1 + (5 * Math.abs(done.value)) / most}px`;
    const becomes = done?.becomes ? `${done.chosen ? shown(done.chosen) : ""} → ${shown({ display: done.becomes })}` : "";
    const { sel } = this.ctx;
    const here = sel.stack === kind.stack && sel.kind === kind.kind && sel.layer === layer && sel.head === head;
    const words = [`${t("layer")} ${layer}`, `${t("head")} ${head}`, `${t("att.entropy")} ${fixed(entropy, 2)}`, tag ? tagged : "", done ? `${t("att.effect")} ${fixed(done.value, 2)} ${becomes}` : ""].filter(Boolean).join(", ");
    return button([h("span", { class: "frame" }, canvas), h("span", {}, `${layer}.${head}`, h("i", {}, `H ${fixed(entropy, 2)}`)), h("span", { class: "tag" }, tag ? tagged : "–"), done ? h("span", {}, h("b", {}, fixed(done.value, 2)), " ", h("bdi", {}, becomes)) : null], () => this.ctx.go("head", { stack: kind.stack, kind: kind.kind, layer, head }), { class: `tile ${here ? "here" : ""}`, "aria-label": words, title: words, "data-key": `tile-${kind.site}-${layer}-${head}` });
  }

  /** Everything that is loaded of one kind: rows of layers, or one list in order. */
  kind(kind, most) {
    const cards = (layer) => this.layers.get(this.name(kind, layer));
    const layers = Array.from({ length: kind.layers }, (_, layer) => layer);
    if (this.sort !== "place") {
      const rank = { entropy: (card) => card.entropy, distance: (card) => -card.distance, effect: (card) => -Math.abs(effect(this.ctx, kind, card.layer, card.head)?.value ?? 0) }[this.sort];
      return h("div", { class: "tiles wrap" }, layers.flatMap(cards).sort((a, b) => rank(a) - rank(b)).map((card) => this.tile(card, most)));
    }
    const fill = (row, layer) => row.replaceChildren(h("span", { class: "note" }, `${t("layer")} ${layer}`), ...cards(layer).map((card) => this.tile(card, most)));
    return h("div", { class: "scroll" }, layers.map((layer) => {
      const row = h("div", { class: "tiles", style: { minWidth: `${this.ctx.model.model.heads * 88}px` } });
      if (cards(layer)) fill(row, layer);
      else this.later(row, async () => (await this.load(kind, layer), fill(row, layer)));
      return row;
    }));
  }

  /** Does something when an element comes near the window. */
  later(element, act) {
    const observer = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      act().catch((error) => element.replaceChildren(h("p", { class: "error" }, error.message)));
    }, { rootMargin: "300px" });
    observer.observe(element);
  }
}

export async function render(root, ctx) {
  const atlas = new Atlas(ctx);
  const all = kinds(ctx.model);
  const places = all.flatMap((kind) => Array.from({ length: kind.layers }, (_, layer) => [kind, layer]));
  const lazy = headCount(ctx.model) > FEW && atlas.sort === "place";
  await Promise.all(places.filter(([kind, layer]) => !lazy || atlas.runs.every((run) => run.cache.has(atlas.name(kind, layer)))).map((place) => atlas.load(...place)));
  const holder = h("div", { class: "atlas" });
  const paint = () => {
    const from = performance.now();
    const most = Math.max(1e-9, ...places.flatMap(([kind, layer]) => Array.from({ length: ctx.model.model.heads }, (_, head) => Math.abs(effect(ctx, kind, layer, head)?.value ?? 0))));
    holder.replaceChildren(...all.map((kind) => figure(`${t(`stack.${kind.stack}`)} · ${t(`kind.${kind.kind}`)}: ${t("att.looks", { query: t(`text.${kind.text}`), key: t(`text.${kind.keys}`) })}`, atlas.kind(kind, most), { name: kind.site, python: ctx.python(atlas.name(kind, 0)) })));
    holder.dataset.ms = (performance.now() - from).toFixed(1);
  };
  const option = (key) => tick(t(`att.${key}`), atlas[key], (on) => setExtra({ [key]: on ? 1 : 0 }));
  const sorts = ["place", "entropy", "effect", "distance"].map((each) => [each, t(`att.sort.${each}`)]);
  root.append(
    h("div", { class: "selects" }, choice(t("att.sort"), sorts, atlas.sort, (sort) => setExtra({ sort })), option("words"), option("hide"), measuring(ctx, paint)),
    h("p", { class: "note" }, t("att.rows"), " ", legend(atlas.scale), " ", t("att.frames")),
    h("details", { class: "note" }, h("summary", {}, t("att.rules")), t("att.rulesText")),
    ...["words", "hide"].filter((key) => atlas[key]).map((key) => h("p", { class: "warning" }, t(`att.${key}Note`))),
    holder,
  );
  paint();
}
