/** What the page says, in the reader's language. */

import { strings as english } from "./strings.en.js";
import { strings as chinese } from "./strings.zh.js";

export const tongue = navigator.language.toLowerCase().startsWith("zh") ? "zh-CN" : "en";
const table = tongue === "en" ? english : chinese;

/** A sentence with its gaps filled: t("detected", {language: "German"}). */
export function t(key, gaps = {}) {
  return (table[key] ?? english[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(gaps[name] ?? ""));
}

/** Puts the words into the page. */
export function speak() {
  document.documentElement.lang = tongue;
  document.title = t("title");
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll("[data-placeholder]")) element.placeholder = t(element.dataset.placeholder);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", t(element.dataset.label));
}

/** A number as it is written here. */
export const number = (value, options = {}) => new Intl.NumberFormat(tongue, options).format(value);
