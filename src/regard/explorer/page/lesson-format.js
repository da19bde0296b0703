/**
 * Reads a lesson: Markdown with links into this page and questions that the model answers.
 *
 * A lesson starts with `---`, lines `title: ...`, `model: ...` and `text: ...`, and `---`. Headings, lists, **bold**,
 * *italic*, `code` and [links](#view=head&layer=1) follow. A question is a fenced block: see docs/lessons.md.
 */

const HEADER_KEYS = ["title", "model", "text"];
const QUESTION_KEYS = ["ask", "choices", "with", "answer", "why"];

/** An error in a lesson, with its line. */
function mistake(line, problem) {
  return new Error(`line ${line}: ${problem}`);
}

/** Splits "key: value"; the key must be one of these. */
function field(text, number, keys) {
  const colon = text.indexOf(":");
  const key = text.slice(0, colon).trim();
  if (colon < 0 || !keys.includes(key)) throw mistake(number, `expected one of ${keys.map((each) => `${each}:`).join(" ")}`);
  return [key, text.slice(colon + 1).trim()];
}

/** Returns {title, model, text, blocks}; each block has a `kind`: heading, paragraph, list or question. */
export function parseLesson(source) {
  const lines = source.replace(/^\uFEFF/, "").split(/\r?\n/);
  const lesson = { title: "", model: "", text: "", blocks: [] };
  let at = 0;
  if (lines[at++] !== "---") throw mistake(1, "a lesson starts with --- and a line title: ...");
  for (; lines[at] !== "---"; at++) {
    if (at >= lines.length) throw mistake(at, "the second --- is missing");
    if (!lines[at].trim()) continue;
    const [key, value] = field(lines[at], at + 1, HEADER_KEYS);
    lesson[key] = value;
  }
  if (!lesson.title) throw mistake(1, "title: is missing");
  at++;
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) at++;
    else if (line.startsWith("```question")) at = readQuestion(lines, at, lesson.blocks);
    else if (/^#{1,3} /.test(line)) lesson.blocks.push({ kind: "heading", text: lines[at++].replace(/^#+ /, "") });
    else {
      const item = line.startsWith("- ");
      const collected = [];
      while (at < lines.length && lines[at].trim() && !lines[at].startsWith("```question") && lines[at].startsWith("- ") === item) collected.push(lines[at++]);
      if (item) lesson.blocks.push({ kind: "list", items: collected.map((each) => each.slice(2)) });
      else lesson.blocks.push({ kind: "paragraph", text: collected.join(" ") });
    }
  }
  return lesson;
}

/** Reads the question that starts at a line, and returns the line after it. */
function readQuestion(lines, start, blocks) {
  const question = { kind: "question", ask: "", choices: [], with: "", answer: "", why: "" };
  let at = start + 1;
  for (; lines[at]?.trim() !== "```"; at++) {
    if (at >= lines.length) throw mistake(start + 1, "the question has no closing ```");
    if (!lines[at].trim()) continue;
    const [key, value] = field(lines[at], at + 1, QUESTION_KEYS);
    question[key] = key === "choices" ? value.split("|").map((each) => each.trim()) : value;
  }
  for (const key of ["ask", "answer"]) if (!question[key]) throw mistake(start + 1, `the question has no ${key}:`);
  blocks.push(question);
  return at + 1;
}

/** Splits a paragraph into {kind, text, href}: text, bold, italic, code and links. */
export function inlineParts(text) {
  const parts = [];
  const pattern = /\*\*([^*]+)\*\*|\*([^*]+)\*|`([^`]+)`|\[([^\]]+)\]\((#[^)\s]*)\)/g;
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) parts.push({ kind: "text", text: text.slice(end, match.index) });
    const [whole, bold, italic, code, link, href] = match;
    if (bold) parts.push({ kind: "bold", text: bold });
    else if (italic) parts.push({ kind: "italic", text: italic });
    else if (code) parts.push({ kind: "code", text: code });
    else parts.push({ kind: "link", text: link, href });
    end = match.index + whole.length;
  }
  if (end < text.length) parts.push({ kind: "text", text: text.slice(end) });
  return parts;
}
