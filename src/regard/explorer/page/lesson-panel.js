/** Draws a lesson beside the views: its text, links that change the selection, and questions with a guess before the answer. */

import { button, fmt, h } from "regard/dom-elements.js";
import { answerOf, isRight } from "regard/lesson-answers.js";
import { inlineParts, parseLesson } from "regard/lesson-format.js";
import { lessonText, run as askRun } from "regard/model-data-client.js";
import { read, request, set, state, write } from "regard/selection-in-url.js";
import { t } from "regard/strings.js";

/** Selections that a link takes back unless it sets them, so that it always leads to the same place. */
const RESET = { patch: "", order: "", prefix: "", checkpoint: "", b: "", ab: "a", target: "", cell: "", x: "" };

/** The changes to the selection that a link "#view=head&layer=1" makes. */
export function changesOf(href) {
  const all = read(href);
  const given = [...new URLSearchParams(href.slice(1)).keys()].filter((key) => key in all && key !== "lesson" && key !== "lang");
  return { ...RESET, ...Object.fromEntries(given.map((key) => [key, all[key]])) };
}

const drawn = { key: "", lesson: null };

/** Draws the selected lesson into its panel, or empties the panel; a lesson brings its own text unless `keepText`. */
export async function drawLesson(panel, model, keepText) {
  const language = document.documentElement.lang.slice(0, 2);
  const key = state.lesson && `${state.lesson} ${language}`;
  document.body.toggleAttribute("data-lesson", Boolean(key));
  if (key === drawn.key) return; // guesses stay
  drawn.key = key;
  panel.replaceChildren();
  if (!key) return;
  try {
    const lesson = parseLesson(await lessonText(state.lesson, language));
    if (drawn.key !== key) return;
    panel.replaceChildren(...content(lesson, model));
    if (lesson.text && !keepText) set({ ...RESET, text: lesson.text });
  } catch (error) {
    panel.replaceChildren(h("p", { class: "error", role: "alert" }, `${state.lesson}: ${error.message}`));
  }
}

function content(lesson, model) {
  const there = (model.models ?? []).find((each) => each.name === lesson.model);
  const link = there ? h("a", { href: `${there.address}#${write({ ...read(""), lesson: state.lesson, lang: state.lang })}` }, t("lesson.openModel", { model: lesson.model })) : "";
  const other = lesson.model && lesson.model !== model.name ? h("p", { class: "warning" }, t("lesson.otherModel", { model: lesson.model }), " ", link) : null;
  const tools = h("div", { class: "ways" }, button(t("lesson.print"), () => print()), button(t("lesson.close"), () => set({ lesson: "" })));
  return [h("h2", {}, lesson.title), tools, other ?? "", ...lesson.blocks.map((block) => draw(block, lesson))];
}

function draw(block, lesson) {
  switch (block.kind) {
    case "heading": return h("h3", {}, inline(block.text, lesson));
    case "list": return h("ul", {}, block.items.map((item) => h("li", {}, inline(item, lesson))));
    case "question": return question(block, lesson);
    default: return h("p", {}, inline(block.text, lesson));
  }
}

const TAGS = { bold: "strong", italic: "em", code: "code" };

function inline(text, lesson) {
  return inlineParts(text).map((part) => {
    if (part.kind === "text") return part.text;
    if (part.kind !== "link") return h(TAGS[part.kind], {}, part.text);
    const follow = (event) => {
      event.preventDefault();
      set({ text: lesson.text || state.text, ...changesOf(part.href) }, { push: true });
    };
    return h("a", { href: part.href, onclick: follow }, part.text);
  });
}

let questions = 0;

/** A question: a guess, then the model's own answer. */
function question(block, lesson) {
  const name = `guess-${++questions}`;
  const result = h("div", { role: "status", class: "answer" });
  const choices = block.choices.map((each) => h("label", { class: "choice" }, h("input", { type: "radio", name, value: each }), h("span", {}, inline(each, lesson))));
  const field = h("input", { name, "aria-label": t("lesson.guess"), autocomplete: "off" });
  const form = h(
    "form",
    {
      class: "question",
      onsubmit: async (event) => {
        event.preventDefault();
        const guess = String(new FormData(form).get(name) ?? "");
        form.setAttribute("aria-busy", "true");
        result.replaceChildren(...(await reveal(block, lesson, guess).catch((error) => [h("p", { class: "error" }, error.message)])));
        form.removeAttribute("aria-busy");
      },
    },
    h("fieldset", {}, h("legend", {}, inline(block.ask, lesson)), choices.length ? choices : field, h("p", { class: "blank", "aria-hidden": "true" })),
    h("button", {}, t("lesson.reveal")),
    result,
  );
  return form;
}

/** Asks the model, and compares its answer with the guess. */
async function reveal(block, lesson, guess) {
  const own = { ...state, ...RESET, text: lesson.text || state.text };
  const runs = [own, { ...own, ...(block.with ? changesOf(block.with) : {}) }].map((each) => askRun(request(each)));
  const [base, run] = await Promise.all(runs);
  const value = await answerOf(block.answer, run, base);
  const shown = value === true ? t("lesson.yes") : value === false ? t("lesson.no") : typeof value !== "number" ? value : Number.isInteger(value) ? String(value) : fmt(value);
  const right = isRight(guess, typeof value === "boolean" ? shown : value);
  const verdict = guess === "" ? "" : h("span", { class: right ? "receipt good" : "receipt bad" }, right ? ` ✓ ${t("lesson.right")}` : ` ✗ ${t("lesson.other")}`);
  return [h("p", {}, t("lesson.model"), " ", h("strong", {}, shown), verdict), block.why ? h("p", {}, inline(block.why, lesson)) : ""];
}
