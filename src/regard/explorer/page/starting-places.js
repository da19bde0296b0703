/** Chooses what is followed in a new run: the step that chose the last word, and a head that looks at another word. */

const MOST_WEIGHTS = 1_000_000;
const SOME = { t: 0, q: 0, layer: 0, head: 0 };

/** Returns the places of the selection that are still open (-1), with the choice for each. */
export async function startingPlaces(model, run, selection) {
  const open = Object.keys(SOME).filter((key) => selection[key] < 0);
  if (!open.length) return {};
  const found = { ...SOME, ...(await chosen(model, run, selection).catch(() => ({}))) }; // a saved file may lack the weights
  return Object.fromEntries(open.map((key) => [key, found[key]]));
}

async function chosen(model, run, { layer, head }) {
  const [[stack, { text, layers }]] = Object.entries(model.stacks);
  const tokens = run.tokens(text);
  const steps = run.answer.steps.filter((each) => !each.given);
  const step = model.task === "fill" ? steps[0] : (steps.findLast((each) => word(each.chosen)) ?? steps.at(-1));
  const t = step?.position ?? Math.max(0, tokens.findLastIndex(word));
  const rows = text === "source" || !step ? tokens.keys() : [t];
  const most = Math.max(1, Math.floor(MOST_WEIGHTS / (model.model.heads * tokens.length ** 2)));
  const numbers = layer < 0 ? Array.from({ length: layers }, (_, i) => i).slice(-most) : [Math.min(layer, layers - 1)];
  const weights = await run.tensors(numbers.map((each) => `${stack}.layers.${each}.self_attention.weights`));
  const best = surest(weights, [...rows], tokens, head, stack === "decoder" ? 1 : 0);
  return { t: text === "source" ? t : (best.row ?? t), q: text === "source" ? best.row : 0, layer: numbers[best.number], head: best.head };
}

const word = (token) => !token.special && /\p{L}/u.test(token.text);

/** The largest weight from one word to another that is no neighbour: attention to those next to it, and to marks, shows little. */
function surest(weights, rows, tokens, only, first) {
  let best = { row: undefined, number: 0, head: 0, weight: 0 };
  weights.forEach((tensor, number) => {
    for (let head = 0; head < tensor.shape[0]; head++) {
      if (only >= 0 && head !== only) continue;
      for (const row of rows)
        for (let key = first; key < tokens.length; key++) { // many writers rest on their first token
          if (Math.abs(row - key) < 2 || !word(tokens[row]) || !word(tokens[key])) continue;
          const weight = tensor.at(head, row, key);
          if (weight > best.weight) best = { row, number, head, weight };
        }
    }
  });
  return best.row === undefined ? { ...best, row: rows.find((row) => word(tokens[row])) ?? rows[0] } : best;
}
