// Turns text into token ids and back, with the same results as regard/tokens/tokenizer.py.
//
//   const { source, target } = loadVocabularies(JSON.parse(text of the file tokenizer.json of a model folder));
//   source.encode("A dog runs.") -> { ids: [...], pieces: ["▁A", "▁dog", ...], offsets: [[0, 1], [1, 5], ...] }
//   target.decode(ids) -> text; special tokens are left out
//
// The JSON is what a model folder has: one vocabulary of Regard (BPE or unigram, as `tokenizers` writes it), or an object
// {source, target} of two. `source` and `target` are one object if the model has one vocabulary. Vocabularies of
// imported models (GPT-2, BERT, Marian, Llama) are refused with an Error. As in Python, offsets count characters (code
// points), not UTF-16 units, and `encode` adds neither begin nor end. Classes of characters (\p{L}) are those of the
// browser's Unicode version, which may know newer characters than Python's.

export const PAD = 0, BEGIN = 1, END = 2, UNKNOWN = 3, MASK = 4;
const SPECIALS = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"];
const BYTES = Array.from({ length: 256 }, (_, byte) => byte.toString(16).toUpperCase().padStart(2, "0"));
const RESERVED = [...SPECIALS, ...BYTES.map((byte) => `<0x${byte}>`)];
const SLOTS = Array.from({ length: 16 }, (_, i) => `slot:${i + 1}`);
const UNKNOWN_PENALTY = 10; // in unigram: score of the rarest piece minus that of an unknown character
const MOST_CACHED = 20_000; // words whose ids are kept

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Returns the tokenizers of the source and the target of the content of tokenizer.json. */
export function loadVocabularies(content) {
  if (content && Object.keys(content).sort().join() === "source,target")
    return { source: new Tokenizer(content.source), target: new Tokenizer(content.target) };
  const shared = new Tokenizer(content);
  return { source: shared, target: shared };
}

export class Tokenizer {
  constructor(content) {
    if (content?.tokenizer && content.specials) throw new Error("vocabularies of imported models do not work in a page");
    this.segmenter = content?.model?.type === "BPE" ? new Merges(content.model) : new Unigram(content?.model);
    const pieces = this.segmenter.pieces;
    const steps = content.normalizer?.normalizers ?? [], cut = content.pre_tokenizer ?? {};
    const own =
      RESERVED.every((piece, id) => pieces[id] === piece) && content.model.byte_fallback && !content.added_tokens?.length &&
      steps.map((step) => step.type).join() === "Prepend,Replace" && steps[0].prepend === " " && steps[1].content === "" &&
      cut.type === "Split" && cut.behavior === "Isolated" && !cut.invert;
    if (!own) throw new Error("this tokenizer was written by another program, or by another version of Regard");
    this.unspaced = new RegExp(translatePattern(steps[1].pattern.Regex), "v"); // the space before a script without spaces
    this.words = new RegExp(translatePattern(cut.pattern.Regex), "gv");
    this.size = pieces.length;
    this.cache = new Map();
    const learnt = pieces.slice(RESERVED.length);
    this.tags = {}; // name -> id of a language
    this.slots = new Map(); // id -> number of a slot, from 1
    let count = 0;
    learnt.forEach((piece, i) => {
      const name = /^<tag:(.+)>$/su.exec(piece)?.[1];
      if (name === undefined) return;
      count += 1;
      if (SLOTS.includes(name)) this.slots.set(RESERVED.length + i, SLOTS.indexOf(name) + 1);
      else this.tags[name] = RESERVED.length + i;
    });
    const texts = learnt.slice(0, learnt.length - count), tags = learnt.slice(learnt.length - count); // tags come last
    const nothing = new Uint8Array();
    this.bytes = [
      ...SPECIALS.map(() => nothing), ...BYTES.map((_, byte) => Uint8Array.of(byte)),
      ...texts.map((piece) => encoder.encode(piece)), ...tags.map(() => nothing),
    ];
    this.shown = [
      ...SPECIALS, ...BYTES.map((byte) => `⟨${byte}⟩`), ...texts.map((piece) => piece.replaceAll(" ", "▁")),
      ...tags.map((piece) => `<${piece.slice(5, -1)}>`),
    ];
    this.specials = { pad: PAD, begin: BEGIN, end: END, unknown: UNKNOWN, mask: MASK };
    /** The ids that no output contains. */
    this.neverGenerated = [PAD, BEGIN, UNKNOWN, MASK, ...Object.values(this.tags)].sort((a, b) => a - b);
  }

  /** Returns the ids of a text, their pieces in readable form, and the characters of the text that each id spells. */
  encode(text) {
    const ids = this.encodeIds(text);
    return { ids, pieces: this.pieces(ids), offsets: this.offsets(ids, text) };
  }

  encodeIds(text) {
    if (!text) return [];
    requireUnicode(text);
    return this.segment(` ${text}`.replace(this.unspaced, ""));
  }

  /** Returns the ids of a text that continues other ids, without a space before it. */
  encodeContinuation(text) {
    requireUnicode(text);
    return this.segment(text);
  }

  /** Returns the ids of a text with slots: {texts, numbers} with one number less than texts. */
  encodeSlotted({ texts, numbers }) {
    const tokens = new Map([...this.slots].map(([token, number]) => [number, token]));
    return numbers.reduce(
      (ids, number, i) => ids.concat(tokens.get(number), this.encodeContinuation(texts[i + 1])),
      this.encodeIds(texts[0]),
    );
  }

  /** Returns the text of ids; bytes that are not UTF-8 become U+FFFD. */
  decode(ids) {
    return withoutSpace(this.join(ids));
  }

  /** Returns the text of ids with its slots: {texts, numbers}. */
  decodeSlotted(ids) {
    const parts = [[]], numbers = [];
    for (const id of ids) {
      if (this.slots.has(id)) numbers.push(this.slots.get(id)), parts.push([]);
      else parts.at(-1).push(id);
    }
    const texts = parts.map((part) => this.join(part));
    return { texts: [withoutSpace(texts[0]), ...texts.slice(1)], numbers };
  }

  /** Returns each id in readable form: ▁ is a space, ⟨E4⟩ a byte. */
  pieces(ids) {
    return Array.from(ids, (id) => this.shown[id]);
  }

  // The parts of these functions

  segment(text) {
    const ids = [];
    let place = 0;
    const add = (word) => {
      let found = this.cache.get(word);
      if (!found) {
        found = this.segmenter.segment(word);
        if (this.cache.size >= MOST_CACHED) this.cache.clear();
        this.cache.set(word, found);
      }
      for (const id of found) ids.push(id);
    };
    for (const match of text.matchAll(this.words)) {
      if (match.index > place) add(text.slice(place, match.index));
      add(match[0]);
      place = match.index + match[0].length;
    }
    if (place < text.length) add(text.slice(place));
    return ids;
  }

  join(ids) {
    const all = Array.from(ids, (id) => this.bytes[id]);
    const bytes = new Uint8Array(all.reduce((sum, each) => sum + each.length, 0));
    let at = 0;
    for (const each of all) bytes.set(each, at), (at += each.length);
    return decoder.decode(bytes);
  }

  offsets(ids, text) {
    const owner = []; // the character of each byte
    let number = 0;
    for (const character of text) {
      const code = character.codePointAt(0), length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      for (let i = 0; i < length; i++) owner.push(number);
      number += 1;
    }
    let end = 0;
    const ends = ids.map((id) => (end += this.bytes[id].length));
    if (end > owner.length) owner.unshift(-1); // the space that encoding adds before the text
    return ends.map((end, i) => [Math.max(0, owner[i ? ends[i - 1] : 0]), owner[end - 1] + 1]);
  }
}

/** Raises an error for a text with half a surrogate pair. */
function requireUnicode(text) {
  const found = /\p{Surrogate}/u.exec(text);
  if (!found) return;
  const code = found[0].charCodeAt(0).toString(16).toUpperCase(), place = [...text.slice(0, found.index)].length + 1;
  throw new Error(`character ${place} is a lone surrogate (U+${code}): the text is not valid Unicode`);
}

const withoutSpace = (text) => (text.startsWith(" ") ? text.slice(1) : text);

/** Appends the tokens of the bytes of a character that is no piece. */
function spell(character, ids) {
  for (const byte of encoder.encode(character)) ids.push(SPECIALS.length + byte);
}

/** Byte-pair encoding: merges the pair that was learned first, as long as there is one. */
class Merges {
  constructor({ vocab, merges }) {
    this.ids = new Map(Object.entries(vocab));
    this.pieces = [];
    for (const [piece, id] of this.ids) this.pieces[id] = piece;
    this.merges = new Map(); // pair of ids -> [rank, id]
    merges.forEach(([left, right], rank) => this.merges.set(this.pair(this.ids.get(left), this.ids.get(right)), [rank, this.ids.get(left + right)]));
  }

  pair(left, right) {
    return left * this.pieces.length + right;
  }

  segment(word) {
    const ids = [];
    for (const character of word) {
      const id = this.ids.get(character);
      if (id === undefined) spell(character, ids);
      else ids.push(id);
    }
    return ids.length > 1 ? this.merge(ids) : ids;
  }

  merge(ids) {
    const next = ids.map((_, i) => i + 1), before = ids.map((_, i) => i - 1), queue = new Queue();
    const offer = (left) => {
      const right = next[left], found = right < ids.length ? this.merges.get(this.pair(ids[left], ids[right])) : undefined;
      if (found) queue.push([found[0], left, found[1]]);
    };
    for (let i = 0; i + 1 < ids.length; i++) offer(i);
    for (let best; (best = queue.pop()); ) {
      const [, left, id] = best, right = next[left];
      if (ids[left] < 0 || right >= ids.length || this.merges.get(this.pair(ids[left], ids[right]))?.[1] !== id) continue;
      ids[left] = id;
      ids[right] = -1; // is part of the left one now
      next[left] = next[right];
      if (next[left] < ids.length) before[next[left]] = left;
      if (before[left] >= 0) offer(before[left]);
      offer(left);
    }
    return ids.filter((id) => id >= 0);
  }
}

/** A heap of [rank, place, id]: the lowest rank comes first, and of equal ranks the lowest place. */
class Queue {
  heap = [];

  before(i, j) {
    const a = this.heap[i], b = this.heap[j];
    return a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);
  }

  swap(i, j) {
    [this.heap[i], this.heap[j]] = [this.heap[j], this.heap[i]];
  }

  push(item) {
    let i = this.heap.push(item) - 1;
    for (let up; i && this.before(i, (up = (i - 1) >> 1)); i = up) this.swap(i, up);
  }

  pop() {
    const { heap } = this, best = heap[0], last = heap.pop();
    if (!heap.length) return best;
    heap[0] = last;
    for (let i = 0; ; ) {
      let first = i;
      for (const child of [2 * i + 1, 2 * i + 2]) if (child < heap.length && this.before(child, first)) first = child;
      if (first === i) return best;
      this.swap(i, first);
      i = first;
    }
  }
}

/** Unigram: the segmentation with the highest sum of scores. */
class Unigram {
  constructor(model) {
    if (model?.type !== "Unigram") throw new Error("this tokenizer is neither BPE nor unigram");
    this.pieces = model.vocab.map(([piece]) => piece);
    this.scores = model.vocab.map(([, score]) => score);
    this.unknown = this.scores.reduce((a, b) => Math.min(a, b), Infinity) - UNKNOWN_PENALTY;
    this.trie = new Map();
    this.pieces.forEach((piece, id) => {
      let node = this.trie;
      for (const character of piece) {
        if (!node.has(character)) node.set(character, new Map());
        node = node.get(character);
      }
      node.id = id;
    });
  }

  segment(word) {
    const characters = [...word], best = Array.from({ length: characters.length + 1 }, () => ({ score: 0, start: -1, id: -1 }));
    const offer = (start, end, score, id) => {
      if (best[end].start < 0 || score > best[end].score) best[end] = { score, start, id };
    };
    for (let start = 0; start < characters.length; start++) {
      const before = best[start].score;
      let known = false; // whether the character alone is a piece
      for (let end = start + 1, node = this.trie; (node = node.get(characters[end - 1])); end++) {
        if (node.id === undefined) continue;
        offer(start, end, this.scores[node.id] + before, node.id);
        known ||= end === start + 1;
      }
      if (!known) offer(start, start + 1, this.unknown + before, -1);
    }
    const chosen = [];
    for (let end = characters.length; end; end = best[end].start) chosen.push(end);
    const ids = [];
    for (const end of chosen.reverse()) {
      if (best[end].id < 0) spell(characters[end - 1], ids);
      else ids.push(best[end].id);
    }
    return ids;
  }
}

/** Translates a regular expression of Regard's tokenizers (Oniguruma's syntax) for the flag "v" of JavaScript. */
export function translatePattern(pattern) {
  const tokens = pattern.match(/\\x\{[0-9A-Fa-f]+\}|\\[pP]\{\w+\}|\\.|&&|[\s\S]/gu);
  let at = 0;
  const escape = (token) => {
    const [, letter, name] = /^\\(.)(?:\{(\w+)\})?$/su.exec(token);
    if (letter === "x") return `\\u{${name}}`;
    if (letter.toLowerCase() === "p") return /^[LMNPSZC][a-z]?$/.test(name) ? token : `\\${letter}{Script=${name}}`;
    return { A: "^", s: "\\p{White_Space}", S: "\\P{White_Space}" }[letter] ?? token;
  };
  const characters = () => { // after "["
    const not = tokens[at] === "^" ? tokens[at++] : "", operands = [""];
    for (let token; (token = tokens[at++]) !== "]"; ) {
      if (token === undefined) throw new Error("a regular expression of the tokenizer has no end");
      if (token === "&&") operands.push("");
      else operands[operands.length - 1] += token === "[" ? characters() : token.startsWith("\\") ? escape(token) : token;
    }
    return `[${not}${operands.length > 1 ? operands.map((each) => `[${each}]`).join("&&") : operands[0]}]`;
  };
  let made = "";
  while (at < tokens.length) {
    const token = tokens[at++];
    made += token === "[" ? characters() : token.length > 1 && token.startsWith("\\") ? escape(token) : token;
  }
  return made;
}
