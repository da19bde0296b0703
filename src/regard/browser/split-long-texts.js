// Cuts a text into lines, and lines that are too long for a model into pieces, as regard/tokens/split_long_texts.py does.

const PYTHON_SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]"; // of str.strip
const OUTER_SPACE = new RegExp(`^${PYTHON_SPACE}+|${PYTHON_SPACE}+$`, "gu");
const BREAKS = [
  new RegExp(`(?<=[.!?…])${PYTHON_SPACE}+|(?<=[。！？])${PYTHON_SPACE}*`, "gu"), // sentences
  new RegExp(`(?<=[,;:])${PYTHON_SPACE}+|(?<=[，；：、])${PYTHON_SPACE}*`, "gu"), // clauses
  new RegExp(`${PYTHON_SPACE}+`, "gu"), // words
];

export const strip = (text) => text.replace(OUTER_SPACE, "");

/** Returns a text as a model sees it: characters composed, tabs as spaces, outer white space removed. */
export const tidy = (text) => strip(text.normalize("NFC").replaceAll("\t", " "));

/** Returns pairs of the line ends before each line, and the line, normalized. */
export function splitLines(text) {
  const lines = [];
  let gap = "";
  for (const piece of text.split(/(\r?\n)/u)) {
    const line = tidy(piece);
    if (piece === "\n" || piece === "\r\n") gap += piece;
    else if (line) lines.push([gap, line]), (gap = "");
  }
  if (gap) lines.push([gap, ""]);
  return lines;
}

/** Cuts a text into pieces that fit: between sentences, else between clauses, else between words. */
export function splitText(text, fits, level = 0) {
  if (fits(text)) return [text];
  if (level === BREAKS.length) throw new Error(`a text is too long for this model and cannot be split: ${text.slice(0, 40)}...`);
  const pieces = [], ends = [...text.matchAll(BREAKS[level])].map((match) => match.index + match[0].length);
  let start = 0, fitting = 0;
  for (const end of [...ends, text.length]) {
    if (fitting > start && !fits(strip(text.slice(start, end)))) {
      pieces.push(strip(text.slice(start, fitting)));
      start = fitting;
    }
    if (fits(strip(text.slice(start, end)))) fitting = end;
    else {
      pieces.push(...splitText(strip(text.slice(start, end)), fits, level + 1));
      start = fitting = end;
    }
  }
  const rest = strip(text.slice(start, fitting));
  return rest ? [...pieces, rest] : pieces;
}
