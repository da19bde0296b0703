/** Frames a figure with its title and with buttons for SVG, PNG, a table and Python code. */

import { button, copy, download, enlarged, h } from "regard/dom-elements.js";
import { t } from "regard/strings.js";

/** python: what rebuilds the tensor shown; name: of the file. */
export function figure(title, body, how = {}) {
  const holder = h("div", { class: "body" }, body);
  const file = (how.name ?? String(title)).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "figure";
  const tables = [...holder.querySelectorAll(".matrix")];
  let asTable = false;
  const tools = h(
    "span",
    { class: "tools" },
    tables.length ? button(t("table"), () => {
      asTable = !asTable;
      holder.replaceChildren(...(asTable ? tables.map((each) => (each).table()) : [body].flat(3).filter(Boolean)));
    }, { "aria-label": `${t("asTable")}: ${title}` }) : null,
    button("SVG", () => download(`${file}.svg`, toSvg(holder), "image/svg+xml"), { "aria-label": `SVG: ${title}` }),
    button("PNG", () => savePng(holder, `${file}.png`), { "aria-label": `PNG: ${title}` }),
    how.python ? button("Python", (_ = null) => copy(how.python ?? "", tools.lastElementChild), { "aria-label": `${t("copyPython")}: ${title}`, title: how.python }) : null,
  );
  return h("figure", {}, h("figcaption", {}, h("span", {}, title), tools), how.note ? h("p", { class: "note" }, how.note) : null, holder);
}

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c] ?? c);

/** Whatever stands in an element, as one SVG: boxes, texts, canvases and drawings where they are on the page. */
export function toSvg(root) {
  const frame = root.getBoundingClientRect();
  const wide = [...root.querySelectorAll(".scroll")].map((each) => {
    each.scrollLeft = 0;
    return each.getBoundingClientRect().left - frame.left + each.scrollWidth;
  });
  const parts = [`<rect width="100%" height="100%" fill="${getComputedStyle(document.body).backgroundColor}"/>`];
  walk(root, frame, parts);
  const [width, height] = [Math.ceil(Math.max(frame.width, root.scrollWidth, ...wide)), Math.ceil(frame.height)];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${parts.join("")}</svg>`;
}
function walk(element, frame, parts) {
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden" || element.matches(".crosshair, .cell, .readout, select, input")) return;
  const box = element.getBoundingClientRect();
  const [x, y] = [box.left - frame.left, box.top - frame.top];
  if (element.toSvg) return void parts.push(`<g transform="translate(${x} ${y})" font-family="monospace" font-size="${11 * enlarged()}">${element.toSvg().map(shape).join("")}</g>`);
  if (element.localName === "svg") return void parts.push(`<g transform="translate(${x} ${y})">${inlined(element)}</g>`);
  if (style.backgroundColor !== "rgba(0, 0, 0, 0)") parts.push(`<rect x="${x}" y="${y}" width="${box.width}" height="${box.height}" fill="${style.backgroundColor}" rx="${parseFloat(style.borderTopLeftRadius) || 0}"/>`);
  if (parseFloat(style.borderTopWidth) > 0 && parseFloat(style.borderLeftWidth) > 0) parts.push(`<rect x="${x}" y="${y}" width="${box.width}" height="${box.height}" fill="none" stroke="${style.borderTopColor}"/>`);
  for (const child of element.childNodes) {
    if (child.nodeType === Node.ELEMENT_NODE) walk(child, frame, parts);
    else if (child.nodeType === Node.TEXT_NODE && child.textContent.trim()) {
      const range = document.createRange();
      for (const word of child.textContent.matchAll(/\S+/g)) { // one by one: lines may break between them
        range.setStart(child, word.index);
        range.setEnd(child, word.index + word[0].length);
        const where = range.getBoundingClientRect();
        parts.push(`<text x="${where.left - frame.left}" y="${where.top - frame.top + parseFloat(style.fontSize)}" fill="${style.color}" font-family="${escape(style.fontFamily)}" font-size="${style.fontSize}" font-weight="${style.fontWeight}" textLength="${where.width}" lengthAdjust="spacingAndGlyphs">${escape(word[0])}</text>`);
      }
    }
  }
}
function shape(each) {
  if (each.kind === "cell") return `<rect x="${each.x}" y="${each.y}" width="${each.w}" height="${each.h}" fill="${each.fill}"/>`;
  if (each.kind === "frame") return `<rect x="${each.x}" y="${each.y}" width="${each.w}" height="${each.h}" fill="none" stroke="${each.stroke}" stroke-width="${each.width}"/>`;
  if (each.kind === "line") return `<line x1="${each.x}" y1="${each.y}" x2="${each.x + each.w}" y2="${each.y + each.h}" stroke="${each.stroke}" stroke-width="${each.width}"/>`;
  return `<text transform="translate(${each.x} ${each.y})${each.turn ? " rotate(-90)" : ""}" text-anchor="${each.anchor}" fill="${each.fill}">${escape(each.text)}</text>`;
}

/** A drawing with its computed colours written into it. */
function inlined(drawing) {
  const clone = (drawing.cloneNode(true));
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [clone, ...clone.querySelectorAll("*")].forEach((each, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"]) {
      const value = style.getPropertyValue(name);
      if (value && value !== "none" || name === "fill" || name === "stroke") each.setAttribute(name, value);
    }
    each.removeAttribute("class");
  });
  return new XMLSerializer().serializeToString(clone);
}
function savePng(root, name) {
  const image = new Image();
  image.onload = () => {
    const canvas = h("canvas", { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(name, blob, "image/png"));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(toSvg(root))}`;
}
