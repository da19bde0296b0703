/** Builds HTML, SVG and MathML elements and formats numbers. Text is always set as text, never as HTML: a token can be anything. */

/**
 * An element: h("div", {class: "x", onclick: f, "aria-label": "y"}, "text", child, [children]).
 * @param {string} tag @param {Record<string, any>} [props] @param {...any} children
 * @returns {any}
 */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element, in the same way. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style" && typeof value === "object") Object.assign(element.style, value);
    else if (name === "value" || name === "checked" || name === "selected" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** How much larger drawings are than usual. */
export const enlarged = () => (document.body.classList.contains("presenting") ? 1.5 : 1);

/** A formula from trusted MathML; numbers and names are put in with `${}` by our own code only. */
export function math(inner) {
  const element = document.createElementNS("http://www.w3.org/1998/Math/MathML", "math");
  element.innerHTML = inner;
  return element;
}

/** A number for people: so many significant digits, minus sign, no noise. */
export function fmt(x, digits = 3) {
  if (x === -Infinity) return "−∞";
  if (x === Infinity) return "∞";
  if (Number.isNaN(x)) return "?";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size >= 10 ** 5 || size < 10 ** -4 ? x.toExponential(digits - 1) : x.toFixed(Math.max(0, Math.min(digits + 2, digits - 1 - Math.floor(Math.log10(size)))));
  return text.replace("-", "−");
}

/** With so many digits after the point: for cells, where columns shall align. */
export function fixed(x, digits = 2) {
  return Number.isFinite(x) ? (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace("-", "−") : fmt(x);
}

export const percent = (p) => (p >= 0.9995 || p < 0.0005 ? fmt(100 * p, 3) : (100 * p).toFixed(1)) + " %";

/** A token as people read it: in its own direction, whatever it is. */
export function piece(token, props = {}) {
  return h("bdi", { dir: "auto", ...props, class: `piece ${token.special ? "special" : ""} ${token.rare ? "rare" : ""} ${props.class ?? ""}` }, shown(token));
}

/** What stands for a token in a label: controls and directions made visible. */
export function shown(token) {
  return String(token.display ?? token.text).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g, (c) => `⟨${c.codePointAt(0)?.toString(16).toUpperCase().padStart(2, "0")}⟩`);
}

/** A button. */
export const button = (label, onclick, props = {}) => h("button", { type: "button", onclick, ...props }, label);

/** A labelled choice. */
export function choice(label, options, value, onchange, props = {}) {
  const select = h("select", { onchange: (e) => onchange(e.target.value), "data-key": `choice-${label}`, ...props }, options.map(([v, text]) => h("option", { value: v, selected: String(v) === String(value) }, text)));
  return h("label", { class: "choice" }, h("span", {}, label), select);
}

/** A labelled tick. */
export const tick = (label, value, onchange) => h("label", { class: "choice" }, h("input", { type: "checkbox", checked: value, "data-key": `tick-${label}`, onchange: (e) => onchange(e.target.checked) }), h("span", {}, label));

/** Saves something as a file. */
export function download(name, content, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Puts a text on the clipboard, or shows it where that is not allowed. */
export async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    prompt("", text);
  }
  if (from) {
    const before = from.textContent;
    from.textContent = "✓";
    setTimeout(() => (from.textContent = before), 900);
  }
}
