// Translates texts in a browser: cuts them into lines, protects placeholders, searches, and joins the outputs. Lines
// without placeholders have the same translations as `regard.Translator` gives in int8.
import { Engine } from "./engine.js";
import { cutAtPieces, holdsPieces } from "./protected-pieces.js";
import { splitLines, splitText, strip, tidy } from "./split-long-texts.js";
import { loadVocabularies } from "./tokenizer.js";

const FIRST_LINES = 12, MOST_LINES = 100; // the first are shown soon; more at once take less time each
const MOST_REMEMBERED = 2000; // lines
const LETTER = /\p{L}/u;

export class Translator {
  /** Takes the bytes of the engine and of a packed model, and the settings that `regard export --to page` writes. */
  static async create(wasm, model, settings, vocabularies) {
    const translator = new Translator();
    Object.assign(translator, { settings, ...loadVocabularies(vocabularies), known: new Map() });
    translator.engine = new Engine(await WebAssembly.compile(wasm), model);
    return translator;
  }

  /** Yields the translation of a text as far as it is done, after every few lines. */
  *translate(text, into) {
    let made = "";
    const lines = splitLines(text);
    for (let i = 0, next = FIRST_LINES; i < lines.length; next = Math.min(2 * next, MOST_LINES)) {
      const group = lines.slice(i, (i += next)), done = this.lines(group.map(([, line]) => line), into);
      made += group.map(([gap], j) => gap + done[j]).join("");
      yield made;
    }
  }

  /** Returns the translations of lines. */
  lines(lines, into) {
    const key = (line) => `${into}\n${line}`, more = [...new Set(lines)].filter((line) => line && !this.known.has(key(line)));
    if (this.known.size > MOST_REMEMBERED) this.known.clear();
    const cuts = new Map(more.map((line) => [line, cutAtPieces(line)])), made = new Map();
    const set = (line, text) => made.set(line, text);
    for (const line of more) if (!cuts.get(line).texts.some((text) => LETTER.test(text))) set(line, line);
    const first = more.filter((line) => !made.has(line)), plain = this.plain(first.map((line) => cuts.get(line)), into);
    first.forEach((line, i) => {
      const { pieces } = cuts.get(line);
      if (!pieces.length || holdsPieces(plain[i], pieces)) set(line, plain[i]);
    });
    for (const line of first) if (!made.has(line)) set(line, this.between(line, cuts.get(line), into));
    for (const [line, text] of made) this.known.set(key(line), text);
    return lines.map((line) => (line ? this.known.get(key(line)) ?? made.get(line) : ""));
  }

  /** Translates the texts between the placeholders separately; a line for which this fails too stays as it is. */
  between(line, cut, into) {
    const cores = cut.texts.map(strip), wanted = cores.filter((core) => LETTER.test(core));
    const found = this.plain(wanted.map((core) => ({ texts: [core], pieces: [] })), into);
    const texts = cut.texts.map((text, i) => (LETTER.test(cores[i]) ? text.replace(cores[i], () => found.shift()) : text));
    const made = texts.map((text, i) => text + (cut.pieces[i] ?? "")).join("");
    return holdsPieces(made, cut.pieces) ? made : line;
  }

  /** Returns the translations of cut texts by the model alone. */
  plain(cuts, into) {
    const rows = cuts.map((cut) => this.parts(cut, into)), all = rows.flat(), { decoding } = this.settings;
    const found = this.engine.search(all.map((part) => [...part.ids, this.settings.end]), {
      ...decoding, neverGenerated: this.target.neverGenerated, limits: all.map((part) => Math.trunc(Math.min(decoding.maxRatio * part.ids.length + 20, this.settings.maxLength))),
    });
    let next = 0;
    return rows.map((parts) => parts.map((part) => part.gap + this.decode(part, found[next++].tokens)).join(""));
  }

  /** Returns the parts of a line: {gap, ids, pieces}; more than one if the line is too long for the model. */
  parts({ texts, pieces }, into) {
    const tags = into in this.source.tags ? [this.source.tags[into]] : [], limit = this.settings.maxLength - 1 - tags.length;
    const whole = this.encode({ texts, pieces });
    if (whole.ids.length <= limit) return [{ ...whole, gap: "", ids: [...tags, ...whole.ids] }];
    const line = texts.map((text, i) => text + (pieces[i] ?? "")).join(""), cut = (text) => this.encode(this.cut(text));
    return splitText(tidy(line), (text) => cut(text).ids.length <= limit).map((text, i) => {
      const part = cut(text);
      return { ...part, gap: i && !this.settings.unspaced.includes(into) ? " " : "", ids: [...tags, ...part.ids] };
    });
  }

  cut(text) {
    return this.source.slots.size ? cutAtPieces(text) : { texts: [text], pieces: [] };
  }

  encode({ texts, pieces }) {
    const { slots } = this.source;
    if (!slots.size) return { ids: this.source.encodeIds(texts.map((text, i) => text + (pieces[i] ?? "")).join("")), pieces };
    const known = [...slots.values()], used = { texts: [texts[0]], numbers: [] };
    pieces.forEach((piece, i) => {
      if (known.includes(i + 1)) used.numbers.push(i + 1), used.texts.push(texts[i + 1]);
      else used.texts[used.texts.length - 1] += piece + texts[i + 1];
    });
    return { ids: this.source.encodeSlotted(used), pieces };
  }

  decode(part, tokens) {
    if (!this.target.slots.size) return this.target.decode(tokens);
    const { texts, numbers } = this.target.decodeSlotted(tokens);
    return texts.map((text, i) => (i ? part.pieces[numbers[i - 1] - 1] ?? "" : "") + text).join("");
  }
}
