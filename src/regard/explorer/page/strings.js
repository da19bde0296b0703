/** What the page says, in the reader's language. */

let table = {};

/** Loads a language: "en", "zh", or "" for the one that the browser asks for. */
export async function speak(wanted) {
  const name = wanted === "en" || wanted === "zh" ? wanted : navigator.language.startsWith("zh") ? "zh" : "en";
  table = (await import(`regard/strings.${name}.js`)).strings;
  document.documentElement.lang = name === "zh" ? "zh-CN" : "en";
}

/** A sentence with its gaps filled: t("stepOf", {n: 3}) of "step {n}". */
export function t(key, gaps = {}) {
  return (table[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(gaps[name] ?? ""));
}
