/** Draws what surrounds every view: the sentence, the tabs of the views, and the selected step and head. */

import { button, choice, copy, enlarged, h, piece } from "regard/dom-elements.js";
import { engine, lessonIndex } from "regard/model-data-client.js";
import { set, state, write } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

const MOST_WORDS = 8;

/** The empty page. */
export function frame() {
  const parts = { header: h("header", { id: "top" }), tabs: h("nav", { id: "tabs", "aria-label": "views" }), rail: h("aside", { id: "rail", "aria-label": "model" }), main: h("main", { id: "main", tabindex: -1 }), playhead: h("section", { id: "playhead", "aria-label": "selection" }), foot: h("footer", {}), lesson: h("aside", { id: "lesson", "aria-label": "lesson" }) };
  document.getElementById("app")?.replaceChildren(h("a", { class: "skip", href: "#main", onclick: (e) => { e.preventDefault(); parts.main.focus(); } }, "↓"), parts.header, parts.tabs, parts.rail, parts.lesson, parts.main, parts.playhead, parts.foot);
  return parts;
}
/** What a view is called: an encoder decodes nothing. */
export const titleOf = (model, name) => t(name === "decoding" && !model.stacks.decoder ? "view.output" : `view.${name}`);

export function tabs(model, names, current) {
  const go = (event, view) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // elsewhere
    event.preventDefault(); // in a frame of a notebook the link would lead to the notebook
    set({ view });
  };
  return names.map((name) => h("a", { onclick: (event) => go(event, name), href: "#" + write({ ...state, view: name }), "data-key": `tab-${name}`, "aria-current": name === current ? "page" : null }, titleOf(model, name)));
}

/** Whether the page is shown to a room: full screen, large type, only the view and its tabs. */
export const presenting = () => enlarged() > 1;

/** Begins or ends showing the page to a room. */
export function present(on = !presenting()) {
  document.body.classList.toggle("presenting", on);
  const change = on ? document.documentElement.requestFullscreen?.() : document.fullscreenElement && document.exitFullscreen();
  change?.catch?.(() => {}); // a frame may forbid it: the type is large all the same
  dispatchEvent(new Event("resize")); // drawings have their size in pixels
}

let opened = false; // on a phone: whether all of the header is shown

/** The choice of a lesson, or nothing where there are none. */
export async function lessonChoice() {
  const language = document.documentElement.lang.slice(0, 2);
  const lessons = (await lessonIndex()).filter((each) => each.language === language || each.language === "");
  return lessons.length ? choice(t("lesson"), [["", t("lesson.none")], ...lessons.map(({ name, title }) => [name, title])], state.lesson, (lesson) => set({ lesson })) : null;
}

/** The sentence, what the model made of it, and how it was asked. */
export function header(model, runs, offline, lessons = null) {
  const answer = runs.a?.answer ?? { labels: [], warnings: [], text: "" }; // nothing when the model could not run
  const field = (name, label, props = {}) => h("label", { class: `field ${name}` }, h("span", {}, label), h("input", { name, value: String(state[name]), autocomplete: "off", spellcheck: "false", disabled: offline, "data-key": `field-${name}`, dir: "auto", ...props }));
  const number = (name, label, min, max, step) => field(name, label, { type: "number", min, max, step, dir: "ltr" });
  const submit = (event) => {
    event.preventDefault();

    const changes = { t: -1, q: -1, prefix: "", order: "" };
    for (const [name, value] of new FormData(form)) changes[name] = typeof state[name] === "number" ? Number(value) : String(value);
    set(changes, { again: true }); // also after a failure
  };
  const writes = model.task === "translate" || model.task === "write";
  const form = h(
    "form",
    { onsubmit: submit },
    field("text", t(model.task === "write" ? "prompt" : "sentence"), { class: "wide", list: "examples", maxlength: 20000 }),
    h("datalist", { id: "examples" }, (model.examples ?? []).map((each) => h("option", { value: each }))),
    model.task === "translate" ? field("target", t("forced"), { placeholder: t("forcedEmpty") }) : null,
    model.task === "classify" ? field("pair", t("secondText")) : null,
    h("button", { class: "run", disabled: offline, "data-key": "run" }, t("run")),
    button("⋯", () => (top.classList.toggle("all", (opened = !opened)), more.setAttribute("aria-expanded", opened)), { class: "unfold", "aria-label": t("more"), "aria-expanded": opened, "data-key": "more" }),
    writes ? h("details", { class: "how" }, h("summary", {}, t("decodingSettings")), h("div", {}, number("beam", t("beamWidth"), 1, model.limits?.beam ?? 16, 1), number("alpha", t("lengthPenalty"), 0, 5, 0.1), number("temperature", t("temperature"), 0, 5, 0.1), number("top_k", "top-k", 0, 1000, 1), number("top_p", "top-p", 0, 1, 0.05), number("seed", t("seed"), 0, 1e9, 1), number("max_tokens", t("maxTokens"), 1, 128, 1))) : null,
  );
  const [top, more] = [document.getElementById("top"), form.querySelector(".unfold")];
  const rare = [...new Set([runs.a, runs.b].flatMap((run) => run?.rare ?? []))];
  const address = `api/export/${answer.run}`;
  const output = answer.labels?.length && answer.labels[0].position === null ? Object.entries(answer.labels[0].probabilities).sort((x, y) => y[1] - x[1])[0][0] : answer.text;
  const link = button(t("copyLink"), () => copy(location.href, link));
  const others = offline ? [] : model.models ?? []; // those that this server has, this one among them
  return [
    h("div", { class: "brand" }, h("h1", {}, "regard"), " ", others.length > 1 ? choice(t("model"), others.map((each) => [each.address, each.about ? `${each.name}: ${each.about}` : each.name]), "./", (there) => location.assign(there + (state.lang ? `#lang=${state.lang}` : ""))) : h("span", { class: "model" }, model.name), h("span", { class: "note" }, ` ${t("parameters", { n: model.parameters.toLocaleString() })}`)),
    form,
    h("p", { class: "output" }, h("span", { class: "arrow", "aria-hidden": "true" }, "→ "), h("bdi", { dir: "auto", id: "output" }, output), runs.b ? h("span", { class: "b" }, " B → ", h("bdi", { dir: "auto" }, runs.b.answer.text)) : null, h("span", { class: "note" }, answer.run ? ` ${Math.round(answer.ms)} ms` : "")),
    h("div", { class: "ways" }, lessons, link, button(t("present"), () => present(), { "data-key": "present", title: `${t("present")} (p)` }), offline ? h("span", { class: "note" }, t("offline")) : answer.run && (engine ? ["json", "safetensors"] : ["html", "json", "safetensors"]).map((kind) => h("a", { href: `${address}.${kind}`, download: `regard.${kind}`, onclick: engine?.save }, kind.toUpperCase())), engine?.note(), choice(t("language"), [["en", "English"], ["zh", "简体中文"]], document.documentElement.lang.startsWith("zh") ? "zh" : "en", (lang) => set({ lang }))),
    rare.length ? h("p", { class: "note rarely", role: "status" }, `${t("rareWords")} `, rare.slice(0, MOST_WORDS).flatMap((word, i) => [i ? ", " : "", h("bdi", { class: "piece rare" }, word)]), rare.length > MOST_WORDS ? " …" : "", `. ${t("rareWhy")}`) : "",
    ...[...answer.warnings, ...(runs.b?.answer.warnings ?? [])].map((each) => h("p", { class: "warning", role: "status" }, each)),
  ];
}

/** The step of decoding and the place in the network. */
export function playhead(ctx) {
  const { sel, stack, run, model } = ctx;
  const chips = (text) => {
    const here = text === "source" ? sel.q : sel.t;
    return h("div", { class: "chips", role: "group", "aria-label": t(`text.${text}`) }, h("span", { class: "note" }, t(`text.${text}`)), run.tokens(text).map((token, i) => button(piece(token), () => ctx.follow(text, i), { class: i === here ? "here" : "", "aria-pressed": i === here, "data-key": `chip-${text}-${i}` })));
  };
  const places = Object.entries(model.stacks).flatMap(([name, each]) => (each).kinds.map((kind) => [`${name}.${kind}`, `${t(`stack.${name}`)} · ${t(`kind.${kind}`)}`]));
  const numbers = (size) => Array.from({ length: size }, (_, i) => ([i, String(i)]));
  return [
    ...Object.keys(run.answer.tokens).map(chips),
    h(
      "div",
      { class: "selects" },
      choice(t("attention"), places, `${sel.stack}.${sel.kind}`, (value) => set({ stack: value.split(".")[0], kind: value.split(".")[1] })),
      choice(t("layer"), numbers(stack.layers), sel.layer, (value) => set({ layer: Number(value) })),
      choice(t("head"), numbers(model.model.heads), sel.head, (value) => set({ head: Number(value) })),
      ctx.b ? [choice("A|B", [["a", "A"], ["b", "B"], ["both", "A | B"], ["diff", t("difference")]], sel.ab, (ab) => set({ ab })), button(t("dropB"), () => set({ b: "", ab: "a" }))] : null,
    ),
    h("p", { class: "honest" }, t("honest"), model.task === "embed" ? "" : ` ${t("honest.effect")}`),
  ];
}
