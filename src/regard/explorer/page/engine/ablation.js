/** Ablates every head or every sublayer in turn, and measures the effect of each on the chosen tokens. */

import { InputError } from "./errors.js";
import { addEdit, changeHead, replacement } from "./patches.js";
import { Trace } from "./trace.js";

/** The effect of each head or sublayer; `pause` is awaited before each, and may throw to stop the work. */
export async function ablate(pass, { what = "heads", op = "zero", targets = null }, pause) {
  if (!pass.answers) throw new InputError("ablate: this model predicts neither tokens nor labels, so ablation has no probability to change");
  if (!["zero", "mean"].includes(op)) throw new InputError(`op: must be zero or mean, not '${String(op).slice(0, 40)}'`);
  if (!["heads", "sublayers"].includes(what)) throw new InputError(`what: must be heads or sublayers, not '${String(what).slice(0, 40)}'`);
  const groups = findLesions(pass.network, what);
  const names = Object.keys(groups).filter((name) => targets === null || targets.includes(name));
  if (targets !== null && (!targets.length || names.length < new Set(targets).size)) throw new InputError(`targets: must be null or some of ${Object.keys(groups).join(", ")}`);
  const effects = {};
  for (const name of names) {
    effects[name] = [];
    for (const lesion of groups[name]) {
      await pause();
      effects[name].push({ site: lesion.site, ...measure(pass, lesion, op) });
    }
  }
  if (what === "sublayers") return { sublayers: effects };
  const { heads } = pass.network.settings;
  const byLayer = (field) => Object.fromEntries(names.map((name) => [name, Array.from({ length: effects[name].length / heads }, (_, layer) => effects[name].slice(layer * heads, (layer + 1) * heads).map((each) => each[field]))]));
  return { kinds: names, heads: byLayer("delta"), top: byLayer("top") };
}

/** The heads of each kind of attention, layer by layer, or the sublayers of each stack. */
function findLesions(network, what) {
  const groups = {};
  for (const [stack, { kinds, layers }] of Object.entries(network.about.stacks)) {
    if (what === "sublayers") groups[stack] = network.sublayers(stack).map((site) => ({ site, head: null }));
    else for (const kind of kinds) groups[`${stack}.${kind}`] = Array.from({ length: layers * network.settings.heads }, (_, i) => ({ site: `${stack}.layers.${Math.floor(i / network.settings.heads)}.${kind}`, head: i % network.settings.heads }));
  }
  return groups;
}

/** The change in log-probability at each step (`delta`), and the most probable token where it changed (`top`). */
function measure(pass, { site, head }, op) {
  const { network, size, chosen } = pass;
  const [stack, , layer] = site.split(".");
  const edits = new Map(pass.edits);
  const change = replacement(op, stack === "decoder");
  if (head === null) addEdit(edits, `${site}.output`, (x, [rows]) => change(x, rows));
  else addEdit(edits, `${site}.context`, changeHead(head, change));
  const logits = network.forward(pass.inputs, new Trace(edits, network.twoTexts), { stack, layer: Number(layer), trace: pass.trace });
  const after = pass.scores(logits);
  const [first, now] = [pass.best(), pass.best(after)];
  const display = (answer) => (network.task === "classify" ? network.about.labels[answer] : pass.lexicon.display(answer));
  return {
    delta: chosen.map((token, row) => {
      const delta = after[row * size + token] - pass.logProbabilities[row * size + token];
      return Number.isNaN(delta) ? 0 : delta; // -Infinity before and after
    }),
    top: now.map((answer, row) => (answer === first[row] ? null : display(answer))),
  };
}
