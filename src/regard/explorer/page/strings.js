/** Loads the texts of the page in the reader's language. */

let table = {};

/** Further texts that the page needs in every view. */
export const further = [];

/** Loads the texts of a view and its frame in a language: "en", "zh", or "" for the browser's language. */
export async function speak(wanted, view) {
  const name = wanted === "en" || wanted === "zh" ? wanted : navigator.language.startsWith("zh") ? "zh" : "en";
  const own = [view === "journey" ? "journey" : "views", ...further];
  const parts = await Promise.all([import(`regard/strings.${name}.js`), ...own.map((part) => import(`regard/strings.${part}.${name}.js`))]);
  table = Object.assign({ ...table }, ...parts.map((part) => part.strings));
  document.documentElement.lang = name === "zh" ? "zh-CN" : "en";
}

/** Returns a text with its gaps filled: t("parameters", {n: 3}) for "{n} parameters". */
export function t(key, gaps = {}) {
  return (table[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(gaps[name] ?? ""));
}
