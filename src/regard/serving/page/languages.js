/** Which languages there are, which are chosen, and whether they can be swapped. */

import { remember, remembered } from "./server-requests.js";
import { t, tongue } from "./strings.js";

const [source, target, swap] = ["#source", "#target", "#swap"].map((each) => document.querySelector(each));
const names = new Intl.DisplayNames([tongue], { type: "language" });
let known = new Map();
let found = ""; // the language that was detected last

/** Fills the choices; `changed` is called when one is made, `swapped` when both are. */
export function offer(languages, preferred, changed, swapped) {
  known = new Map(languages.map((each) => [each.code, each]));
  const sources = languages.filter((each) => others(each.code).length);
  fill(source, ["auto", ...sources.map((each) => each.code)]);
  const [from, into] = [remembered("source"), remembered("target") || preferred];
  // With one language to choose, detection could only be wrong.
  pick(source, [from, sources.length === 1 ? sources[0].code : "auto"]);
  offerTargets(into);
  const choose = () => {
    detected("");
    offerTargets(target.value);
    keep();
    changed();
  };
  source.addEventListener("change", choose);
  target.addEventListener("change", choose);
  swap.addEventListener("click", () => {
    const [before, after] = [start(), target.value];
    source.value = after;
    offerTargets(before);
    detected("");
    keep();
    swapped();
  });
}

/** What is chosen. */
export const chosen = () => ({ source: source.value, target: target.value });

/** Takes note of the language that a text is in. */
export function detected(code) {
  found = code;
  const [from, into] = [start(), target.value];
  const can = Boolean(from) && from !== into && others(into).includes(from);
  swap.disabled = !can;
  const label = can || !from || from === into ? t("swap") : t("swapNot", { source: name(into), target: name(from) });
  swap.title = label;
  swap.setAttribute("aria-label", label);
}

/** A language as readers call it. */
export function name(code) {
  const given = known.get(code)?.name ?? code;
  if (tongue === "en") return given;
  try {
    const here = names.of(code);
    return here && here !== code ? here : given;
  } catch {
    return given;
  }
}

const start = () => (source.value === "auto" ? found : source.value);
const others = (code) => (known.get(code)?.targets ?? []).filter((each) => each !== code);
const keep = () => (remember("source", source.value), remember("target", target.value));

function offerTargets(preferred) {
  const from = source.value === "auto" ? [...known.keys()] : [source.value];
  const reached = new Set(from.flatMap(others));
  fill(target, [...known.keys()].filter((code) => reached.has(code)));
  pick(target, [preferred]);
  detected(found);
}

function fill(select, codes) {
  select.replaceChildren(...codes.map((code) => new Option(code === "auto" ? t("auto") : name(code), code)));
}

function pick(select, wishes) {
  const codes = [...select.options].map((option) => option.value);
  select.value = wishes.find((code) => codes.includes(code)) ?? codes[0] ?? "";
}
