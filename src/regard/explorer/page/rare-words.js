/**
 * Finds words that the model has hardly seen. A vocabulary has the frequent words of its text whole and rarer ones in
 * parts, so a word that falls into single letters, bytes or the unknown token was rare there, or missing.
 * A vocabulary that is too small for whole words says nothing by single letters.
 */

const WORD = /[\p{L}\p{M}]+/gu;
const LETTER = /[\p{L}\p{M}]/u;
const BYTE = /⟨[0-9A-F]{2}⟩/;
/** Writing without spaces: there a letter is often a word. */
const LETTERS_ARE_WORDS = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]/u;

/** Marks the tokens of rare words in what a run has read (`rare`), and returns these words. */
export function markRareWords({ tokens, request }) {
  const given = (Object.values(tokens)[0] ?? []).filter((token) => typeof token.start === "number" && token.end > token.start);
  if (request.pair || request.order) return []; // their places are not those of one text
  const whole = hasWholeWords(tokens);
  const characters = [...request.text];
  const found = [];
  let at = 0;
  for (const { 0: word, index } of request.text.matchAll(WORD)) {
    const start = [...request.text.slice(0, index)].length;
    const end = start + [...word].length;
    while (at < given.length && given[at].end <= start) at++;
    const upTo = given.findIndex((token, i) => i >= at && token.start >= end);
    const parts = given.slice(at, upTo < 0 ? undefined : upTo).filter((token) => LETTER.test(characters.slice(Math.max(start, token.start), token.end).join("")));
    if (!isRare(word, parts, whole)) continue;
    for (const token of parts) token.rare = true;
    found.push(word);
  }
  return [...new Set(found)];
}

const letters = (text) => (text.match(/\p{L}/gu) ?? []).length;

/** Whether most words of two letters or more are single tokens: those that the model has written, if it writes by itself. */
function hasWholeWords({ target, ...read }) {
  const words = new Map();
  Object.values(target ? { target } : read).flat().forEach((token) => {
    if (token.special || token.word < 0) return;
    const [count, size] = words.get(token.word) ?? [0, 0];
    words.set(token.word, [count + 1, size + letters(token.text)]);
  });
  const long = [...words.values()].filter(([, size]) => size > 1);
  return long.length > 1 && long.filter(([count]) => count === 1).length >= long.length * (target ? 2 / 3 : 1 / 2);
}

/** An unknown token covers text although it is special; a mask does so too, but is written in brackets. */
function isRare(word, parts, whole) {
  if (parts.some((token) => (token.special && !/mask/i.test(word)) || BYTE.test(token.display))) return true;
  return whole && parts.length > 1 && !LETTERS_ARE_WORDS.test(word) && parts.filter((token) => letters(token.text) === 1).length >= letters(word) / 2;
}
