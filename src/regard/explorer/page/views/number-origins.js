/** Lists, for each kind of tensor, the numbers from which one of its numbers is computed. */

import { ACTIVATIONS, linear, mean, norm, variance } from "regard/model-arithmetic.js";
import { weight } from "regard/model-data-client.js";

const total = (terms) => terms.reduce((sum, term) => sum + term.value, 0);
const product = (...factors) => ({ factors, value: factors.reduce((all, each) => all * each.value, 1) });

/** The tensor that a cell is in, and what stands around it. Names that begin with a dot are of the same module. */
class Place {
  constructor({ run, model }, name) {
    Object.assign(this, { run, model, shape: model.model, half: false, flat: name.endsWith(".unrotated"), pre: model.model.norm === "pre" });
    [, this.site, this.kind] = name.replace(".unrotated", "").match(/^(?:(.*)\.)?(\w+)$/);
    [, this.path, this.stack, this.layer, this.sub] = /^((\w+)\.layers\.(\d+))\.(\w+?)(?:_attention|_residual)?$/.exec(this.site) ?? [];
  }

  /** The cells along the last axis of a tensor of the run, or of a weight: {value, cell}. */
  async cells(name, ...index) {
    const full = name[0] === "." ? this.site + name : name;
    const leaf = full in this.model.weights;
    const tensor = leaf ? await weight(full, `${index[0]}:${index[0] + 1}`) : await this.run.tensor(full);
    this.half ||= tensor.half;
    const [numbers, flat] = [leaf ? tensor.data : tensor.row(...index), leaf && tensor.shape.length < 2];
    return Array.from(numbers, (value, n) => ({ value, leaf, cell: `${full}:${flat ? index : [...index, n]}` }));
  }

  /** One cell; of a bias that is not there, none. */
  async cell(name, ...index) {
    const vector = index.length < 2;
    if (vector && !(this.site + name in this.model.weights) && !(name in this.model.weights)) return null;
    return (await this.cells(name, ...(vector ? index : index.slice(0, -1))))[vector ? 0 : index.at(-1)];
  }

  /** x · a row of a weight, plus its bias if it has one. */
  async dot(x, name, row, formula) {
    const [weights, bias] = await Promise.all([this.cells(`${name}.weight`, row), this.cell(`${name}.bias`, row)]);
    return summed(formula, x.map((each, n) => product(each, weights[n])), bias);
  }

  /** Cells that are added, [name, ...index] each. */
  async added(formula, ...cells) {
    return { formula, terms: (await Promise.all(cells.map((each) => this.cell(...each)))).map((each) => product(each)) };
  }

  /** The stream that flows into a sublayer, and what the sublayer reads of it. */
  before(layer = Number(this.layer), sub = this.sub, stack = this.stack) {
    const { kinds, text } = this.model.stacks[stack];
    const parts = [...kinds.map((kind) => kind.replace("_attention", "")), "feed_forward"];
    const [at, after] = [parts.indexOf(sub), this.pre ? "sum" : "norm"];
    if (at > 0) return `${stack}.layers.${layer}.${parts[at - 1]}_residual.${after}`;
    if (layer > 0) return `${stack}.layers.${layer - 1}.feed_forward_residual.${after}`;
    const embedding = this.model.embeddings[text];
    return `${embedding}.${this.run.has(`${embedding}.norm`) ? "norm" : "sum"}`;
  }

  input() {
    return this.pre ? `${this.path}.${this.sub}_residual.norm` : this.before();
  }

  /** The group of keys and values that a head uses. */
  group(head) {
    return Math.floor((head * this.shape.query_groups) / this.shape.heads);
  }
}

const summed = (formula, terms, bias) => ({ formula: formula + (bias ? " + b" : ""), terms: bias ? [...terms, product(bias)] : terms });

/**
 * How a cell is made: {formula, terms, steps, result, half}. Terms are {factors: [{value, cell}], value}, where `cell` is the address of the
 * factor's own origin; steps are named numbers on the way to the result; half: some came in 16 bits. None if it is not told.
 */
export async function originOf(ctx, name, index) {
  const place = new Place(ctx, name);
  const origin = await RULES[place.kind]?.(place, ...index);
  return origin ? { term: "", steps: [], result: total(origin.terms), half: place.half, ...origin } : null;
}

/** A row's norm: mean, variance, then gain and shift. */
async function normed(o, source, site, i, n) {
  const [x, gain, shift] = await Promise.all([o.cells(source, i), o.cell(`${site}.weight`, n), o.cell(`${site}.bias`, n)]);
  const { norm_kind: kind, norm_epsilon: epsilon } = o.shape;
  const rms = kind === "rms";
  const numbers = x.map((each) => each.value);
  const [middle, spread] = [rms ? 0 : mean(numbers), variance(numbers, kind)];
  const unit = (numbers[n] - middle) / Math.sqrt(spread + epsilon);
  const centred = rms ? "x" : "x − μ";
  return {
    formula: `y = {${centred}|√(σ² + ε)} · g${shift ? " + b" : ""}`,
    terms: x.map((each) => ({ factors: [each], value: (each.value - middle) ** 2 })),
    term: `(${centred})²`,
    mark: n,
    steps: [["μ", middle], [`σ² = ∑ / ${x.length}`, spread], ["ε", epsilon], ["x", numbers[n], x[n].cell], [`(${centred}) / √(σ² + ε)`, unit], ["g", gain.value, gain.cell], ["b", shift?.value, shift?.cell]].filter(([key, value]) => value !== undefined && !(rms && key === "μ")),
    result: unit * gain.value + (shift?.value ?? 0),
  };
}

/** A query, key or value: a row of a weight times what is read; with rotary positions, turned. */
async function projected(o, head, i, n) {
  const { kind, shape, sub } = o;
  const x = await o.cells(sub === "cross" && kind !== "query" ? "encoder.states" : o.input(), i);
  const width = kind === "value" ? shape.head_value_width : shape.head_width;
  const straight = (m) => o.dot(x, `.${kind}`, head * width + m, `${kind[0]}_n = ∑_d x_d · W_nd`);
  if (o.flat || kind === "value" || sub === "cross" || shape.positions !== "rotary") return straight(n);
  const [half, low] = [width / 2, n < width / 2];
  const angle = i * shape.rotary_base ** ((-2 * (n % half)) / width);
  const [own, other] = await Promise.all([n, low ? n + half : n - half].map(async (m) => ({ value: total((await straight(m)).terms), cell: `${o.site}.${kind}.unrotated:${[head, i, m]}` })));
  return { formula: `${kind[0]}_n = a_n cos θ ${low ? "−" : "+"} a_m sin θ`, terms: [product(own, { value: Math.cos(angle), name: "cos θ, sin θ" }), product(other, { value: (low ? -1 : 1) * Math.sin(angle) })], steps: [["θ", angle]] };
}

/** What stands between the states and a head's logits: a dense layer, its activation and norm, or a mean; none where nothing does. */
async function judged({ site, shape, model }, states) {
  const how = site === "fill" ? "fill" : site === "label" && model.carrier !== "word" ? shape.pooler : "none";
  if (how === "mean") return states[0].map((_, n) => mean(states.map((row) => row[n])));
  if (how === "none") return null;
  const owner = how === "fill" ? "fill" : "pooler";
  const [dense, bias, gain, shift] = await Promise.all(["dense.weight", "dense.bias", "norm.weight", "norm.bias"].map((name) => (`${owner}.${name}` in model.weights ? weight(`${owner}.${name}`) : null)));
  const risen = linear(dense, states[0], bias.data).map(how === "tanh" ? Math.tanh : ACTIVATIONS[how === "fill" ? shape.activation : how]);
  return gain ? norm(risen, gain.data, shift?.data ?? null, shape.norm_epsilon, shape.norm_kind) : risen;
}

/** By the last part of a tensor's name. */
const RULES = {
  async weights(o, head, i, j) {
    const row = await o.cells(".masked", head, i);
    const top = Math.max(...row.map((each) => each.value));
    const terms = row.map((each) => ({ factors: [each], value: Math.exp(each.value - top) }));
    const [own, all] = [terms[j].value, total(terms)];
    return { formula: "w_ij = {exp ( m_ij − max )|∑_j exp ( m_ij − max )}", terms, term: "exp(m − max)", mark: j, steps: [["max", top], ["m", row[j].value, row[j].cell], ["exp(m − max)", own], ["∑", all]], result: own / all };
  },
  async masked(o, ...index) {
    const [scaled, { value }] = await Promise.all([o.cell(".scaled", ...index), o.cell(".masked", ...index)]);
    return { formula: "m_ij = c_ij + mask_ij", terms: [product(scaled), product({ value: value === -Infinity ? value : 0, name: "mask" })] };
  },
  async scaled(o, ...index) {
    const width = o.shape.head_width;
    return { formula: "c_ij = {s_ij|√(d_k)}", terms: [product(await o.cell(".scores", ...index), { value: 1 / Math.sqrt(width), name: `1 / √${width}` })] };
  },
  async scores(o, head, i, j) {
    const [query, key] = await Promise.all([o.cells(".query", head, i), o.cells(".key", o.group(head), j)]);
    return { formula: "s_ij = ∑_n q_in · k_jn", terms: query.map((each, n) => product(each, key[n])) };
  },
  query: projected,
  key: projected,
  value: projected,
  async context(o, head, i, n) {
    const row = await o.cells(".weights", head, i);
    const values = await Promise.all(row.map((_, j) => o.cell(".value", o.group(head), j, n)));
    return { formula: "z_in = ∑_j w_ij · v_jn", terms: row.map((each, j) => product(each, values[j])) };
  },
  async contributions(o, head, i, n) {
    const [part, row] = await Promise.all([o.cells(".context", head, i), o.cells(".output.weight", n)]);
    return { formula: "y_n = ∑_m z_m · W_nm", terms: part.map((each, m) => product(each, row[head * part.length + m])) };
  },
  async output(o, i, n) {
    if (o.sub === "feed_forward") return o.dot(await o.cells(".active", i), ".fall", n, "y_n = ∑_m a_m · W_nm");
    const heads = await Promise.all(Array.from({ length: o.shape.heads }, (_, head) => o.cells(".context", head, i)));
    return o.dot(heads.flat(), ".output", n, "y_n = ∑_m z_m · W_nm");
  },
  rise: async (o, i, n) => o.dot(await o.cells(o.input(), i), `.${o.kind}`, n, "u_n = ∑_d x_d · W_nd"),
  gate: (...all) => RULES.rise(...all),
  async active(o, ...index) {
    const act = o.shape.activation;
    const rise = await o.cell(".rise", ...index);
    if (act !== "swiglu") return { formula: `a = ${act} ( u )`, terms: [{ factors: [rise], value: ACTIVATIONS[act](rise.value) }], term: act };
    const gate = await o.cell(".gate", ...index);
    const open = ACTIVATIONS.swiglu(gate.value);
    return { formula: "a = silu ( g ) · u", terms: [{ factors: [gate, rise], value: open * rise.value }], term: "silu(g) · u", steps: [["silu(g)", open]] };
  },
  sum: (o, ...index) => (o.sub ? o.added("x + f ( x )", [o.before(), ...index], [`${o.path}.${o.sub}${o.sub === "feed_forward" ? "" : "_attention"}.output`, ...index]) : o.added("x = E + P", ...["tokens", "positions", "segments"].map((part) => `${o.site}.${part}`).filter((part) => o.run.has(part)).map((part) => [part, ...index]))),
  norm: (o, i, n) => normed(o, o.sub && o.pre ? o.before() : ".sum", ".norm", i, n),
  states(o, i, n) {
    const last = o.before(o.model.stacks[o.site].layers, "self", o.site);
    return o.pre ? normed(o, last, ".norm", i, n) : o.added("h = x", [last, i, n]);
  },
  async tokens(o, i, n) {
    const text = Object.keys(o.model.embeddings).find((each) => o.model.embeddings[each] === o.site);
    const row = await o.cell(o.model.tables[text], o.run.tokens(text)[i].id, n);
    return o.model.scale === 1 ? { formula: "x_n = E_tn", terms: [product(row)] } : { formula: "x_n = E_tn · √{d}", terms: [product(row, { value: o.model.scale, name: "√d" })] };
  },
  positions(o, i, n) {
    if (`${o.site}.positions.table` in o.model.weights) return o.added("p_n = P_in", [".positions.table", i, n]);
    const pairs = o.shape.width / 2;
    const halves = o.shape.positions === "sinusoidal-halves";
    const [wave, sine] = halves ? [n % pairs, n < pairs] : [Math.floor(n / 2), n % 2 === 0];
    const angle = i / 10000 ** (wave / pairs);
    return { formula: `p_n = ${sine ? "sin" : "cos"} {i|10000^(${wave}/${pairs})}`, terms: [], steps: [["i", i], [`i / 10000^(${wave}/${pairs})`, angle]], result: Math[sine ? "sin" : "cos"](angle) };
  },
  async segments(o, i, n) {
    const [{ value }, table] = await Promise.all([o.cell(".segments", i, n), weight(`${o.site}.segments.weight`)]);
    const row = Array.from({ length: table.shape[0] }, (_, m) => table.at(m, n)).indexOf(value);
    return o.added("s_n = S_tn", [".segments.weight", Math.max(0, row), n]);
  },
  async logits(o, ...index) {
    const [token, i = 0] = [...index].reverse();
    const states = await o.run.tensor(`${Object.keys(o.model.stacks).at(-1)}.states`);
    const x = await o.cells(states.name, i);
    const rows = o.site === "label" && index.length < 2 ? Array.from({ length: states.shape[0] }, (_, n) => Array.from(states.row(n))) : [x.map((each) => each.value)];
    const made = await judged(o, rows);
    const { weight: table, bias } = o.model.output;
    const [row, own] = await Promise.all([o.cells(table, token), bias ? o.cell(bias, token) : null]);
    return { ...summed("l = ∑_n h_n · E_tn", x.map((each, n) => product(made ? { ...each, value: made[n] } : each, row[n])), own), note: made ? "made" : "" };
  },
};
