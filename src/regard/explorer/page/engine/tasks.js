/** Runs each task once with all tensors kept: translating, writing, filling gaps, labelling and embedding. */

import { InputError } from "./errors.js";
import { encoderTokens, promptTokens, reordered, sourceTokens, wordTokens } from "./lexicon.js";
import { checkPatches, checkPlaces, hiddenPlaces, makeEdits } from "./patches.js";
import { describeLabels, describeSteps, Pass } from "./pass.js";
import { writeOutput } from "./search.js";

/** Runs the model's task on a text: the pass with its tensors, and the description of the run. */
export function runTask(model, request, settings) {
  checkPatches(request.patch, model.network);
  return ["translate", "write"].includes(model.network.task) ? runWriting(model, request, settings) : runReading(model, request);
}

/** Writes a translation or a continuation, then reads the finished text once more with all tensors kept. */
function runWriting(model, request, settings) {
  if (request.pair !== null) throw new InputError("pair: only encoder models read two texts");
  const { network, lexicons, positions } = model;
  const translates = network.twoTexts;
  const lexicon = lexicons[network.written];
  const { begin, end } = lexicon.specials;
  const given = reordered(translates ? sourceTokens(lexicons.source, request.text, positions, request.to === undefined ? [] : [request.to]) : promptTokens(lexicon, request.text, positions), request.order);
  const ids = given.tokens.map((token) => token.id);
  const room = positions - (translates ? 0 : ids.length - 1);
  const { forced, warnings } = forcedTokens(model, request, room);
  const lengths = { source: ids.length, target: room, text: ids.length + Math.max(0, forced.length - 1) };
  checkPlaces(request.patch.filter((patch) => patch.op === "hide"), network, lengths);
  checkPlaces(request.patch.filter((patch) => patch.op === "force"), network, { ...lengths, text: positions });
  const keep = keepMask(network, request.patch, ids.length);
  let limit = Math.min(room, request.target !== null ? forced.length : settings.max_tokens);
  if (translates && request.target === null) limit = Math.min(limit, Math.trunc(settings.max_ratio * (ids.length - 1) + 20));
  const edits = makeEdits(request.patch, network);
  const start = translates ? [begin] : ids;
  const seedIds = translates && ids.at(-1) === lexicons.source.specials.end ? ids.slice(0, -1) : ids;
  const output = writeOutput(network, lexicon, { read: ids, start, seedIds, settings, limit: Math.max(1, limit), forced, edits, keep });

  const written = [...start, ...output.tokens.slice(0, output.gains.length - 1)];
  const tokens = { ...(translates ? { source: ids } : {}), [network.written]: written };
  const pass = new Pass(model, { tokens, rows: written.map((_, i) => i), keep }, edits, settings.repetition_penalty);
  pass.chosen = [...start.slice(1), ...output.tokens, ...(output.finished ? [end] : [])];
  const shown = translates ? { ...request, text: given.line } : request;
  const unused = unusedPatches(request.patch, written.length);
  return { pass, answer: { ...describeRun(pass, shown, describeWriting(pass, given, output)), warnings: [...given.warnings, ...warnings, ...unused] } };
}

/** The tokens that the output must begin with, and a warning if they had to be cut off. */
function forcedTokens(model, { prefix, target }, room) {
  const lexicon = model.lexicons[model.network.written];
  for (const token of prefix ?? []) if (token < 0 || token >= lexicon.size || lexicon.special.has(token)) throw new InputError(`prefix: ${token} is not the id of a token the model can generate`);
  if (target === null) return { forced: prefix ?? [], warnings: [] };
  const { ids } = lexicon.cut(target, { rest: model.network.task === "write" });
  if (ids.includes(lexicon.specials.unknown)) throw new InputError("target: contains characters that are not in the model's vocabulary; remove them");
  if (ids.length + 1 <= room) return { forced: [...ids, lexicon.specials.end], warnings: [] };
  return { forced: ids.slice(0, room), warnings: [`the target has ${ids.length} tokens: only the first ${room} are shown`] };
}

/** Which tokens are visible, or null if all are; tokens of a writer are hidden by edits instead. */
function keepMask(network, patches, length) {
  const hidden = hiddenPlaces(patches);
  return hidden.size && network.task !== "write" ? Array.from({ length }, (_, place) => !hidden.has(place)) : null;
}

/** A warning for each patch of a row that the finished text does not have. */
function unusedPatches(patches, length) {
  return patches.flatMap(({ op, site, query }, i) => (op === "force" && site.startsWith("decoder") && (query ?? 0) >= length ? [`patch ${i + 1} forces row ${query}, but the text has only ${length} rows`] : []));
}

/** The tokens of a translation or a continuation, and how each of them was chosen. */
function describeWriting(pass, given, output) {
  const { network, lexicon } = pass;
  const translates = network.twoTexts;
  const before = translates ? 0 : given.tokens.length - 1; // rows whose token is part of the prompt
  const fixed = before + output.given;
  const shown = lexicon.tokens(pass.inputs.tokens[network.written]);
  const ids = given.tokens.map((token) => token.id);
  const how = new Map();
  output.drawn.forEach((number, i) => {
    if (before + i >= fixed) how.set(before + i, [number, output.kept[i]]);
  });
  return {
    tokens: translates ? { source: given.tokens, target: shown } : { text: shown.map((token, i) => (given.tokens[i] ? { ...token, start: given.tokens[i].start, end: given.tokens[i].end } : token)) },
    steps: describeSteps(pass, (row) => row < fixed, how),
    beam: output.beam,
    text: translates ? lexicon.decode(output.tokens) : lexicon.decode([...ids, ...output.tokens]).slice(lexicon.decode(ids).length),
    finished: output.finished,
    log_probability: output.gains.reduce((sum, gain) => sum + gain, 0),
    score: output.score,
  };
}

/** Reads a text with an encoder: fills its gaps, labels it, or turns it into a vector. */
function runReading(model, request) {
  const { network, lexicons, positions } = model;
  if (request.target !== null || request.prefix !== null) throw new InputError("target and prefix: an encoder generates no text; leave them out");
  if (request.pair !== null && network.settings.segments === 1) throw new InputError("pair: this model has no segments and reads only one text; leave pair out");
  const lexicon = lexicons.text;
  const fills = network.task === "fill";
  const words = network.task === "classify" && network.about.carrier === "word";
  if (words && request.pair !== null) throw new InputError("pair: a model that labels words reads only one text; leave pair out");
  const given = reordered(words ? wordTokens(lexicon, request.text, positions) : encoderTokens(lexicon, request.text, request.pair, positions, fills), request.order);
  const ids = given.tokens.map((token) => token.id);
  checkPlaces(request.patch, network, { text: ids.length });
  const all = ids.map((_, i) => i);
  const gaps = all.filter((i) => ids[i] === lexicon.specials.mask);
  const rows = words ? given.firsts : gaps.length ? gaps : all.filter((i) => !given.tokens[i].special);
  const pass = new Pass(model, { tokens: { text: ids }, rows: network.task === "classify" && !words ? [0] : rows, keep: keepMask(network, request.patch, ids.length), segments: given.segments }, makeEdits(request.patch, network));
  const known = fills && !gaps.length;
  if (pass.answers) pass.chosen = known ? rows.map((row) => ids[row]) : pass.best();
  return { pass, answer: { ...describeRun(pass, request, describeReading(pass, given, known)), warnings: given.warnings } };
}

/** The reading of a text: its steps are the gaps, or all tokens if it has no gaps. */
function describeReading(pass, given, known) {
  const { network, lexicon, inputs, chosen } = pass;
  let text = "";
  if (network.task === "fill") {
    const answers = new Map(inputs.rows.map((row, i) => [row, chosen[i]]));
    text = lexicon.decode(inputs.tokens.text.map((id, i) => answers.get(i) ?? id));
  } else if (network.task === "classify") text = chosen.map((label) => network.about.labels[label]).join(" ");
  const log_probability = pass.answers ? chosen.reduce((sum, answer, row) => sum + pass.logProbabilities[row * pass.size + answer], 0) : null;
  return { tokens: { text: given.tokens }, steps: describeSteps(pass, () => known, new Map()), beam: null, text, finished: true, log_probability, score: log_probability };
}

/** The description of a run of any task. */
function describeRun(pass, request, task) {
  const points = Object.fromEntries(Object.keys(pass.network.about.stacks).map((stack) => [stack, Object.keys(pass.network.points(stack))]));
  return { request, ...task, labels: describeLabels(pass), points };
}
