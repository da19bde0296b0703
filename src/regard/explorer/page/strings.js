/** What the page says, in the reader's language. */

import { en } from "regard/strings.en.js";
import { zh } from "regard/strings.zh.js";

/** @type {Record<string, Record<string, string>>} */
const LANGUAGES = { en, zh };
let table = en;

/** @param {string} wanted "en", "zh" or "": what the browser asks for */
export function speak(wanted) {
  const name = wanted in LANGUAGES ? wanted : navigator.language.startsWith("zh") ? "zh" : "en";
  table = LANGUAGES[name];
  document.documentElement.lang = name === "zh" ? "zh-CN" : "en";
  return name;
}

/** A sentence with its gaps filled: t("stepOf", {n: 3}) of "step {n}". @param {string} key @param {Record<string, any>} [gaps] */
export function t(key, gaps = {}) {
  return (table[key] ?? en[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(gaps[name] ?? ""));
}

export const has = (/** @type {string} */ key) => key in en;
