// Finds the pieces of a text that a translation must keep unchanged, as regard/tokens/protected_pieces.py does:
// placeholders, tags, entities, addresses. Its tests compare both.

const WORD = "\\p{L}\\p{N}_", DIGIT = "\\p{Nd}";
const CONVERSION =
  `%(?:${DIGIT}{1,3}\\$|\\([^()%\\s]{0,100}\\))?[\\-+#0'I]{0,5}(?:\\*(?:${DIGIT}{1,3}\\$)?|${DIGIT}{1,5})?` +
  `(?:\\.(?:\\*(?:${DIGIT}{1,3}\\$)?|${DIGIT}{0,5}))?(?:(?:hh|h|ll|l|L|q|j|z|t)?[A-Za-z@]|<PRI[${WORD}]{1,20}>)`;
const PROSE = `(?!(?<=${DIGIT})%-?ig|(?<=${DIGIT})%-[a-z]{2}|%'(?:t|s|ll)(?![${WORD}]))`;
const PATTERNS = {
  url: `(?<![${WORD}])(?:[A-Za-z][A-Za-z0-9+.\\-]{1,20}:\\/\\/|www\\.)(?=[${WORD}\\/\\[$%\\{])[^\\s<>"“”„«»‘’|\\\\^\`]+`,
  email: `(?<![${WORD}.+\\-])[${WORD}.+\\-]{1,64}@[A-Za-z0-9\\-]+(?:\\.[A-Za-z0-9\\-]+)+`,
  brace: "[$#%]?\\{",
  nesting: "\\$t\\([^()]*\\)",
  variable: `\\$[A-Za-z_][${WORD}]*|(?<!${DIGIT})%[A-Z]{3}[A-Z0-9_]{0,60}%?`,
  printf: `%L${DIGIT}{1,2}|${PROSE}(?:${CONVERSION})|%%|%${DIGIT}{1,2}(?!${DIGIT})|%<(?=[^<>]*%>)|%>`,
  entity: "&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});",
  mnemonic: "(?<!&)&(?:(?<![A-Z]&)|(?![A-Z]))(?=[\\p{L}\\p{N}])",
  tag:
    `<\\/?[A-Za-z][${WORD}:.\\-]*(?=[\\s\\/>])[^<>"']*(?:(?:"[^"<]*"|'[^'<]*')[^<>"']*)*>` +
    "|<!--[^<>]*-->|<[!?][A-Za-z][^<>]*>",
  code: `\\[X${DIGIT}{1,9}X\\]`,
};
const ANY_PIECE = new RegExp(Object.entries(PATTERNS).map(([kind, pattern]) => `(?<${kind}>${pattern})`).join("|"), "gu");
const SIGN = /[%{&<$@]|:\/\/|www\.|\[X/u;
const SIMPLE = /^(?:\S*|[^\s,:!]*\s?(?:![rsa])?\s?[:,][\s\S]*)$/u;
const BLOCK = new RegExp(`\\s*[${WORD}.]+\\s*,\\s*(?:plural|select|selectordinal|choice)\\s*,`, "uy");
const ARGUMENT = new RegExp(`(?<!%)%([\\-+#0'I]{0,5}[${DIGIT}.*]{0,12})(?:hh|h|ll|l|L|q|j|z|t)?([A-Za-z@](?![A-Z]{2})|<PRI[${WORD}]{1,20}>)`, "gu");
const VOID = new Set("br hr img input wbr area base col embed link meta source track x".split(" "));

/** Returns the protected pieces of a text in order: {start, end, text, kind}. */
export function findPieces(text) {
  const found = [];
  if (!SIGN.test(text)) return found;
  const blocks = closedBlocks(text);
  let place = 0, quoted = false;
  for (;;) {
    ANY_PIECE.lastIndex = place;
    const match = ANY_PIECE.exec(text);
    if (!match) return found;
    const start = match.index;
    let kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined), end = start + match[0].length;
    if (kind === "brace") [kind, end] = braced(text, end - 1, blocks);
    else if (kind === "url") end = start + withoutPunctuation(match[0]).length;
    else if (match[0] === "%>" && !quoted) end = start;
    quoted = match[0] === "%<" || (quoted && match[0] !== "%>");
    if (end > start) found.push({ start, end, text: text.slice(start, end), kind });
    place = Math.max(end, start + 1);
  }
}

/** Returns for each opening brace the end of its block, and whether the block contains no other. */
function closedBlocks(text) {
  const blocks = new Map(), open = [];
  let last = -1;
  for (const match of text.matchAll(/[{}]/gu)) {
    if (match[0] === "{") open.push(match.index);
    else if (open.length) {
      const start = open.pop();
      blocks.set(start, [match.index + 1, last < start]);
      last = start;
    }
  }
  return blocks;
}

function braced(text, start, blocks) {
  const [end, leaf] = blocks.get(start) ?? [0, false];
  if (leaf) {
    const inside = text.slice(start + 1, end - 1).trim();
    const command = inside.length > 1 && inside.startsWith("%") && inside.endsWith("%");
    return ["brace", command || SIMPLE.test(inside) ? end : 0];
  }
  for (const depth of [1, 2]) {
    const inner = blocks.get(start + depth);
    if (end && inner && inner[0] === end - depth && inner[1]) return ["brace", end];
  }
  BLOCK.lastIndex = start + 1;
  return ["icu", end && BLOCK.test(text) ? end : 0];
}

/** Returns an address without the punctuation of the sentence; a bracket stays if it was opened inside. */
function withoutPunctuation(url) {
  const count = (sign) => url.split(sign).length - 1, surplus = { ")": count(")") - count("("), "]": count("]") - count("["), "}": count("}") - count("{") };
  let end = url.length;
  while (".,;:!?'*_~…".includes(url[end - 1]) || surplus[url[end - 1]] > 0) {
    end -= 1;
    if (url[end] in surplus) surplus[url[end]] -= 1;
  }
  return url.slice(0, end);
}

/** Cuts a text at its placeholders: {texts, pieces} with one text more than pieces. Mnemonics (&File) are left alone. */
export function cutAtPieces(text) {
  const pieces = findPieces(text).filter((piece) => piece.kind !== "mnemonic");
  const starts = [0, ...pieces.map((piece) => piece.end)], ends = [...pieces.map((piece) => piece.start), text.length];
  return { texts: starts.map((start, i) => text.slice(start, ends[i])), pieces: pieces.map((piece) => piece.text) };
}

/** Reports whether a translation has exactly these pieces, in an order that programs accept. */
export function holdsPieces(made, pieces) {
  const found = cutAtPieces(made).pieces, same = (a, b) => a.length === b.length && a.every((each, i) => each === b[i]);
  const positional = (list) => list.filter(takesArguments), tags = (list) => list.filter(roleOf);
  if (!same([...found].sort(), [...pieces].sort()) || !same(positional(found), positional(pieces))) return false;
  return isNested(found) || same(tags(found), tags(pieces));
}

function takesArguments(piece) {
  return ["{}", "{:", "{!"].includes(piece.slice(0, 2)) || piece.search(ARGUMENT) >= 0;
}

function isNested(pieces) {
  const open = [];
  for (const role of pieces.map(roleOf)) {
    if (role.startsWith("/") && open.pop() !== role.slice(1)) return false;
    if (role && !role.startsWith("/")) open.push(role);
  }
  return !open.length;
}

function roleOf(piece) {
  const name = `[${WORD}][${WORD}:.\\-]*`, closes = new RegExp(`^</(${name})\\s*>$`, "u").exec(piece);
  if (closes) return `/${closes[1]}`;
  const opens = new RegExp(`^<(${name})`, "u").exec(piece);
  return !opens || piece.endsWith("/>") || piece.endsWith(`</${opens[1]}>`) || VOID.has(opens[1].toLowerCase()) ? "" : opens[1];
}
