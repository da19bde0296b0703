/** Writes formulas as MathML, and compares a sum that the page computed again with PyTorch's result. */

import { fmt, h, math } from "regard/dom-elements.js";

const node = (word) => {
  const kind = /^[\d.−∞]+$/.test(word) ? "mn" : /^[=+−·×()∑→⊙,;]$/.test(word) ? "mo" : "mi";
  return `<${kind}>${word}</${kind}>`;
};
const term = (word) => {
  if (word[0] === "√") return `<msqrt>${term(word.slice(1))}</msqrt>`;
  return word.includes("_") ? `<msub>${word.split("_").map(node).join("")}</msub>` : node(word);
};
const terms = (text) => `<mrow>${text.trim().split(" ").map(term).join("")}</mrow>`;

/** "q_i = x_i W_Q" as MathML; {a|b} is a fraction, √a a root. Only our own words and numbers come in here. */
export function formula(text) {
  const parts = text.split(/\{(.*?)\|(.*?)\}/); // plain, top, bottom, plain, ...
  const inner = parts.map((part, n) => (n % 3 === 1 ? `<mfrac>${terms(part)}` : n % 3 ? `${terms(part)}</mfrac>` : part.trim() && terms(part)));
  return h("p", { class: "formula scroll", tabindex: 0 }, math(inner.join("")));
}

/** The largest difference to PyTorch, and whether it is small enough. */
export const receipt = (text, delta, most = 1e-4) =>
  h("p", { class: `receipt ${delta <= most ? "good" : "bad"}`, "data-delta": delta }, `${text}: |Δ| = ${fmt(delta, 2)} ${delta <= most ? "✓" : "✗"}`);
