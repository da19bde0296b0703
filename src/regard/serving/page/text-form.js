/** The text: translated when one stops typing, the request before it given up. */

import { chosen, detected, name } from "./languages.js";
import { Problem, ask, complain, keyWorks } from "./server-requests.js";
import { number, t } from "./strings.js";

const find = (selector) => document.querySelector(selector);
const [text, made, count, told, status, message] = ["#text", "#made", "#count", "#detected", "#status", "#message"].map(find);
const [clear, copy, alternatives, others] = ["#clear", "#copy", "#alternatives", "#others"].map(find);

const OTHERS = 3;
const look = find("#look");
let [limit, pause] = [-1, 500];
let explorers = {}; // addresses by source and target
let from = ""; // the language of the text that was translated
let [timer, asking] = [0, new AbortController()];

/** Begins to listen. */
export function begin(settings) {
  [limit, pause] = [settings.charLimit ?? -1, settings.frontendTimeout ?? 500];
  explorers = settings.look ?? {};
  look.addEventListener("click", () => (look.href = explorer()));
  look.addEventListener("auxclick", () => (look.href = explorer()));
  text.addEventListener("input", (event) => event.isComposing || later());
  text.addEventListener("compositionend", later);
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    translate();
  });
  clear.addEventListener("click", () => {
    text.select();
    document.execCommand("delete"); // unlike another value, this can be undone
  });
  copy.addEventListener("click", () => copyMade());
  alternatives.addEventListener("click", () => {
    alternatives.setAttribute("aria-pressed", String(!wantsOthers()));
    others.hidden = true;
    if (wantsOthers()) translate();
  });
  addEventListener("online", () => message.hidden || translate());
  tally();
  if (text.value.trim()) translate(); // what a browser keeps when a page is loaded again
}

/** Goes on with the translation, now that the languages are swapped; without one the text stays. */
export function swapped() {
  if (made.value && !document.body.hasAttribute("aria-busy")) text.value = made.value;
  translate();
}

/** Translates in a moment, unless more is typed. */
function later() {
  clearTimeout(timer);
  asking.abort();
  tally();
  if (!text.value.trim()) return translate();
  busy(true);
  timer = setTimeout(translate, pause);
}

/** Translates now. */
export async function translate() {
  clearTimeout(timer);
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const length = tally();
  complain(message, null);
  if (!text.value.trim()) return show({ translatedText: "" });
  busy(true);
  try {
    if (limit >= 0 && length > limit) throw new Problem(t("tooLong", { n: number(length), limit: number(limit) }));
    const values = { q: text.value, ...chosen(), format: "text", ...(wantsOthers() && { alternatives: OTHERS }) };
    show(await ask("translate", values, signal));
    keyWorks();
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Problem)) throw error;
    show({ translatedText: "" });
    complain(message, error, () => (text.focus(), translate()));
    if (error.seconds && error.seconds <= 60) timer = setTimeout(translate, 1000 * error.seconds);
  }
}

function show(answer) {
  made.value = answer.translatedText;
  made.lang = chosen().target;
  copy.disabled = !made.value;
  status.textContent = made.value ? t("done") : "";
  const language = answer.detectedLanguage;
  from = language?.language ?? chosen().source;
  look.hidden = !made.value || !explorer();
  if (!look.hidden) look.href = explorer();
  detected(language?.confidence ? language.language : "");
  told.textContent = language ? said(language) : "";
  showOthers(answer.alternatives ?? []);
  busy(false);
}

/** The address at which one sees how this was translated: what is selected, or the line of the cursor. */
function explorer() {
  const address = explorers[from]?.[chosen().target];
  const { value, selectionStart: start, selectionEnd: end } = text;
  const line = value.slice(value.lastIndexOf("\n", start - 1) + 1).split("\n")[0];
  const sentence = [value.slice(start, end), line, ...value.split("\n")].find((each) => each.trim());
  return address && `${address}#${new URLSearchParams({ text: sentence.trim().replace(/\s+/g, " ") })}`;
}

function said({ language, confidence }) {
  if (!confidence) return t("undetected", { language: name(language) });
  if (language === chosen().target) return t("already", { language: name(language) });
  return t("detected", { language: name(language), share: number(confidence / 100, { style: "percent" }) });
}

function showOthers(found) {
  others.hidden = !wantsOthers() || !made.value;
  const items = found.map((each) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: each, dir: "auto", lang: made.lang });
    button.addEventListener("click", () => ([made.value, button.textContent] = [button.textContent, made.value]));
    return button;
  });
  const lines = (items.length ? items : [t("none")]).map((each) => {
    const line = document.createElement("li");
    line.append(each);
    return line;
  });
  others.querySelector("ul").replaceChildren(...lines);
}

const wantsOthers = () => alternatives.getAttribute("aria-pressed") === "true";

/** Counts as the server does, by code points. */
function tally() {
  const length = [...text.value].length;
  const gaps = { n: number(length), limit: number(limit) };
  count.textContent = limit < 0 ? gaps.n : t("count", gaps);
  if (limit >= 0) count.setAttribute("aria-label", t("countLabel", gaps));
  count.classList.toggle("over", limit >= 0 && length > limit);
  text.setAttribute("aria-invalid", String(limit >= 0 && length > limit));
  clear.hidden = !text.value;
  return length;
}

function busy(is) {
  if (is) document.body.setAttribute("aria-busy", "true");
  else document.body.removeAttribute("aria-busy");
  if (is) status.textContent = t("working");
}

async function copyMade() {
  try {
    await navigator.clipboard.writeText(made.value);
    copy.textContent = t("copied");
  } catch {
    made.select(); // a page that comes without TLS from another machine may not write there
    copy.textContent = t(document.execCommand("copy") ? "copied" : "copyNot");
  }
  setTimeout(() => (copy.textContent = t("copy")), 1500);
}
