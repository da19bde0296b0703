/** Turns texts into tokens for display, with the characters that each covers and the word that it belongs to. */

import { InputError } from "./errors.js";

/** A tokenizer; `about` has its size, its special ids and, for each id, "1" if it continues a word, or can be continued. */
export class Lexicon {
  constructor(tokenizer, about) {
    this.tokenizer = tokenizer;
    this.size = about.size;
    this.specials = about.specials;
    this.tags = about.tags;
    this.continues = about.continues;
    this.canContinue = about.can_continue;
    this.special = new Set([...about.specials.never_generated, about.specials.end]);
  }

  show = (id) => ({ id, text: this.decode([id]), display: this.display(id) });
  display = (id) => this.tokenizer.pieces([id])[0];
  decode = (ids) => this.tokenizer.decode(ids);

  /** Tokens with numbered words, and with their characters if these are known. */
  tokens(ids, spans = []) {
    let word = -1;
    let before = null;
    return ids.map((id, i) => {
      const special = this.special.has(id);
      const first = before === null || this.special.has(before);
      if (!special && (first || !(this.continues[id] === "1" && this.canContinue[before] === "1"))) word++;
      before = id;
      const [start, end] = spans[i] ?? [null, null];
      return { ...this.show(id), start, end, word: special ? -1 : word, special };
    });
  }

  /** The ids of a text and the characters of each; `rest` means that the text continues another one. */
  cut(text, { rest = false, offset = 0 } = {}) {
    const ids = !rest ? this.tokenizer.encode(text).ids : text ? this.tokenizer.encodeContinuation(text) : [];
    const spans = this.tokenizer.offsets(ids, text).map(([start, end]) => [start + offset, end + offset]);
    return { ids, spans };
  }

  /** The ids of a text with [MASK] in it, as a model reads it that fills gaps, and the characters of each. */
  cutGaps(text) {
    const gaps = [...text.matchAll(/ ?\[MASK\]| ?<mask>/g)].map((match) => [match.index, match.index + match[0].length]);
    const { mask } = this.specials;
    if (gaps.length && mask === null) throw new InputError("text: the vocabulary of this model has no mask token; remove [MASK]");
    const ends = [...gaps.map(([start]) => start), text.length];
    const { ids, spans } = ends[0] ? this.cut(text.slice(0, ends[0])) : { ids: [], spans: [] };
    const place = (index) => characters(text.slice(0, index));
    gaps.forEach(([start, end], i) => {
      const more = this.cut(text.slice(end, ends[i + 1]), { rest: true, offset: place(end) });
      ids.push(mask, ...more.ids);
      spans.push([place(start), place(end)], ...more.spans);
    });
    return { ids, spans };
  }
}

/** The number of characters of a text, as Python counts them. */
export const characters = (text) => [...text].length;

const SPACES = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const OUTER = new RegExp(`^[${SPACES}]+|[${SPACES}]+$`, "g");
const WORD = new RegExp(`[^${SPACES}]+`, "g");
const LINES = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;

/** A text as a model sees it: characters composed (NFC), tabs as spaces, outer white space removed. */
const tidy = (text) => text.normalize("NFC").replaceAll("\t", " ").replace(OUTER, "");

const lengthWarning = (count, most) => (count > most ? [`the text has ${count} tokens: only the first ${most} are shown`] : []);

/** The line that a translator reads, and its tokens with tags and end. */
export function sourceTokens(lexicon, text, most, tags) {
  const lines = text.split(LINES).map(tidy).filter(Boolean);
  if (!lines.length) throw new InputError("text: must not be empty; type a text to translate");
  const line = lines.join(" ");
  const cut = lexicon.cut(line);
  const ids = [...tags.map((tag) => lexicon.tags[tag]), ...cut.ids];
  const spans = [...tags.map(() => null), ...cut.spans];
  const tokens = lexicon.tokens([...ids.slice(0, most - 1), lexicon.specials.end], [...spans.slice(0, most - 1), null]);
  const joined = lines.length > 1 ? [`the text has ${lines.length} lines; they are joined into one`] : [];
  return { line, tokens, warnings: [...joined, ...lengthWarning(ids.length + 1, most)] };
}

/** The tokens of a prompt to continue; an empty prompt is the begin token alone. */
export function promptTokens(lexicon, text, most) {
  let { ids, spans } = lexicon.cut(text);
  if (lexicon.specials.prompt || !ids.length) [ids, spans] = [[lexicon.specials.begin, ...ids], [null, ...spans]];
  return { tokens: lexicon.tokens(ids.slice(0, most), spans.slice(0, most)), warnings: lengthWarning(ids.length, most) };
}

/** The tokens of one or two texts with begin and ends; [MASK] is a gap if the model fills gaps. */
export function encoderTokens(lexicon, text, pair, most, fills) {
  if (!text.replace(OUTER, "")) throw new InputError("text: must not be empty; type a text");
  const { specials } = lexicon;
  const first = fills ? lexicon.cutGaps(text) : lexicon.cut(text);
  const second = pair ? lexicon.cut(pair) : { ids: [], spans: [] };
  const row = shorten(first.ids, second.ids, specials, most);
  const whole = join(first.ids, second.ids, specials);
  const warnings = row.shortened ? [`the text has ${whole.ids.length} tokens: only ${row.ids.length} are shown`] : [];
  const count = (segment) => row.segments.filter((each) => each === segment).length;
  const rest = Math.max(0, count(1) - 1);
  const between = Array(specials.between - 1).fill(null);
  const kept = count(0) - 2 - (rest ? between.length : 0);
  const spans = [null, ...first.spans.slice(0, kept), null, ...(rest ? [...between, ...second.spans.slice(0, rest), null] : [])];
  return { tokens: lexicon.tokens(row.ids, spans), segments: row.segments, warnings };
}

/** One text or two as an encoder reads them, and the segment of each token. */
function join(first, second, { begin, end, between }) {
  const ids = [begin, ...first, end];
  const segments = ids.map(() => 0);
  if (!second.length) return { ids, segments };
  const gap = Array(between - 1);
  return { ids: [...ids, ...gap.fill(end), ...second, end], segments: [...segments, ...gap.map(() => 0), ...second.map(() => 1), 1] };
}

/** The same in at most `longest` tokens: the longer text of a pair loses its end first. */
function shorten(first, second, specials, longest) {
  const room = longest - 2 - (second.length ? specials.between : 0);
  const kept = Math.min(first.length, Math.max(room - second.length, second.length ? Math.floor(room / 2) : room));
  return { ...join(first.slice(0, kept), second.slice(0, room - kept), specials), shortened: kept < first.length || room - kept < second.length };
}

/** The tokens of words between spaces, each tokenized by itself, for a model that labels words. */
export function wordTokens(lexicon, text, most) {
  const { begin, end, pad } = lexicon.specials;
  const words = [...text.matchAll(WORD)];
  if (!words.length) throw new InputError("text: must not be empty; type a text to label");
  const tokens = lexicon.tokens([begin]);
  const firsts = [];
  words.forEach((match, number) => {
    const [word] = match;
    const start = characters(text.slice(0, match.index));
    const cut = lexicon.cut(word, { offset: start });
    const found = cut.ids.length ? cut : { ids: [pad], spans: [[start, start + characters(word)]] };
    firsts.push(tokens.length);
    tokens.push(...lexicon.tokens(found.ids, found.spans).map((token) => ({ ...token, word: number, special: false })));
  });
  const shown = [...tokens.slice(0, most - 1), ...lexicon.tokens([end])];
  return { tokens: shown, segments: shown.map(() => 0), firsts: firsts.filter((first) => first < most - 1), warnings: lengthWarning(tokens.length + 1, most) };
}

/** The tokens in another order, if one is given: the first is the one at position order[0]. */
export function reordered(given, order) {
  if (!order) return given;
  if (order.length !== given.tokens.length) throw new InputError(`order: there are ${order.length} numbers, but the text has ${given.tokens.length} tokens`);
  return { ...given, tokens: order.map((place) => given.tokens[place]), segments: given.segments && order.map((place) => given.segments[place]), firsts: given.firsts?.map((place) => order.indexOf(place)) };
}
