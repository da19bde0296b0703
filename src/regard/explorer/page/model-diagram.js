/** Draws the model like Figure 1 of the paper, with its real settings and the current selection. */

import { button, h } from "regard/dom-elements.js";
import { set } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

const SHORT = ({ self_attention: "self", cross_attention: "cross", feed_forward: "FF" });
export function map(ctx) {
  const { model, sel } = ctx;
  const shape = model.model;
  const layers = (name, stack) =>
    Array.from({ length: stack.layers }, (_, layer) => {
      const here = name === sel.stack && layer === sel.layer;
      const parts = [...stack.kinds, "feed_forward"].map((kind) => button(SHORT[kind], () => set({ stack: name, layer, ...(kind === "feed_forward" ? {} : { kind }) }), { class: `${kind} ${here && kind === sel.kind ? "here" : ""}`, "aria-pressed": here && kind === sel.kind, "aria-label": `${SHORT[kind]}: ${t(`stack.${name}`)} ${layer} ${t(`kind.${kind}`)}`, "data-key": `map-${name}-${layer}-${kind}` }));
      return h("div", { class: `layer ${here ? "here" : ""}` }, h("span", { class: "number" }, String(layer)), h("span", { class: "parts" }, parts));
    });
  const columns = Object.entries(model.stacks).map(([name, stack]) =>
    h("div", { class: "stack" }, h("div", { class: "end" }, name === "decoder" ? t("map.output") : stack.text === "text" ? t("map.heads") : t("map.memory")), layers(name, stack).reverse(), h("div", { class: "end" }, `${t("map.embedding")} ${shape.positions === "rotary" || shape.positions === "none" ? "" : "+ " + t("map.position")}`), h("div", { class: "title" }, t(`stack.${name}`))),
  );
  const facts = [t("map.width", { n: shape.width }), t("map.hidden", { n: shape.hidden }), t("map.heads2", { n: shape.heads, k: shape.head_width }), t(`map.${shape.norm}`), shape.norm_kind === "rms" ? "RMSNorm" : "LayerNorm", shape.activation, t(`map.pos.${shape.positions}`), model.output && t(model.tied.output ? "map.tied" : "map.untied")].filter(Boolean);
  return h("details", { class: "map", open: innerWidth > 900 }, h("summary", {}, t("map.title")), h("div", { class: "stacks" }, columns), h("p", { class: "note" }, facts.join(" · ")));
}
