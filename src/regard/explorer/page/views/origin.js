/** Where a number comes from: for each name of a tensor, the numbers that it is made of. */

import { weight } from "regard/data.js";
import { ACTIVATIONS, linear, mean, norm, variance } from "regard/maths.js";

const sum = (terms) => terms.reduce((total, term) => total + term.value, 0);
const product = (...factors) => ({ factors, value: factors.reduce((all, each) => all * each.value, 1) });

/**
 * How one cell is made. An origin is {formula, terms, steps, result}: terms are products of factors {value, cell},
 * where `cell` is the address of the factor's own origin; steps are named numbers on the way to the result.
 */
export class Origins {
  constructor(ctx) {
    this.run = ctx.run;
    this.model = ctx.model;
    this.shape = ctx.model.model;
    this.half = false; // some number came in 16 bits
  }

  async tensor(name) {
    const found = await this.run.tensor(name);
    this.half ||= Boolean(found.half);
    return found;
  }

  /** A cell of a tensor of the run, or of a weight. */
  async cell(name, ...index) {
    const row = name in this.model.weights ? await weight(name, `${index[0]}:${index[0] + 1}`) : null;
    const value = row ? row.data[index[1] ?? 0] : (await this.tensor(name)).at(...index);
    return { value, cell: `${name}:${index}`, leaf: Boolean(row) };
  }

  /** Cells along the last axis. */
  async cells(name, ...index) {
    const isWeight = name in this.model.weights;
    const numbers = isWeight ? (await weight(name, `${index[0]}:${index[0] + 1}`)).data : (await this.tensor(name)).row(...index);
    return Array.from(numbers, (value, n) => ({ value, cell: `${name}:${[...index, n]}`, leaf: isWeight }));
  }

  /** x · row of a weight, plus its bias if it has one. */
  async dot(x, name, row, formula, from = 0) {
    const [weights, bias] = await Promise.all([this.cells(`${name}.weight`, row), this.bias(`${name}.bias`, row)]);
    const terms = x.map((each, n) => product(each, weights[n + from]));
    return { formula: formula + (bias ? " + b" : ""), terms: bias ? [...terms, product(bias)] : terms };
  }

  bias(name, row) {
    return name in this.model.weights ? this.cell(name, row) : null;
  }

  /** The norm of a row of a tensor. */
  async norm(source, site, position, column) {
    const [x, gain, shift] = await Promise.all([this.cells(source, position), this.cell(`${site}.weight`, column), this.bias(`${site}.bias`, column)]);
    const { norm_kind: kind, norm_epsilon: epsilon } = this.shape;
    const plain = kind === "rms";
    const numbers = x.map((each) => each.value);
    const [middle, spread] = [plain ? 0 : mean(numbers), variance(numbers, kind)];
    const normed = (numbers[column] - middle) / Math.sqrt(spread + epsilon);
    return {
      formula: `y = {x${plain ? "" : " − μ"}|√(σ² + ε)} · g${shift ? " + b" : ""}`,
      terms: x.map((each) => ({ factors: [each], value: (each.value - middle) ** 2 })),
      term: plain ? "x²" : "(x − μ)²",
      mark: column,
      steps: [...(plain ? [] : [["μ", middle]]), [`σ² = ∑ / ${x.length}`, spread], ["ε", epsilon], ["x", numbers[column], x[column].cell], [`${plain ? "x" : "(x − μ)"} / √(σ² + ε)`, normed], ["g", gain.value, gain.cell], ...(shift ? [["b", shift.value, shift.cell]] : [])],
      result: normed * gain.value + (shift?.value ?? 0),
    };
  }

  async added(formula, ...cells) {
    return { formula, terms: (await Promise.all(cells.map(([name, ...index]) => this.cell(name, ...index)))).map((each) => product(each)) };
  }

  /** The keys and values that a head uses. */
  group(head) {
    return Math.floor((head * this.shape.query_groups) / this.shape.heads);
  }

  /** What flows into a sublayer: the stream before it. */
  before(stack, layer, part) {
    const parts = [...this.model.stacks[stack].kinds.map((kind) => kind.replace("_attention", "")), "feed_forward"];
    const after = this.shape.norm === "pre" ? "sum" : "norm";
    const at = parts.indexOf(part);
    if (at > 0) return `${stack}.layers.${layer}.${parts[at - 1]}_residual.${after}`;
    if (layer > 0) return `${stack}.layers.${layer - 1}.feed_forward_residual.${after}`;
    const embedding = this.model.embeddings[this.model.stacks[stack].text];
    return `${embedding}.${this.run.has(`${embedding}.norm`) ? "norm" : "sum"}`;
  }

  /** What a sublayer reads: that stream, or its norm. */
  input(stack, layer, part) {
    return this.shape.norm === "pre" ? `${stack}.layers.${layer}.${part}_residual.norm` : this.before(stack, layer, part);
  }

  /** The origin of a cell; none for weights, and for what is not told. */
  async of(name, index) {
    for (const [pattern, explain] of RULES) {
      const found = name.match(pattern);
      if (!found) continue;
      const origin = await explain(this, found.slice(1), index);
      return origin ? { term: "", steps: [], result: sum(origin.terms), ...origin } : null;
    }
    return null;
  }
}

/** Attention from its weights back to queries and keys. */
const ATTENTION = {
  weights: async (o, site, [head, i, j]) => {
    const row = await o.cells(`${site}.masked`, head, i);
    const top = Math.max(...row.map((each) => each.value));
    const terms = row.map((each) => ({ factors: [each], value: Math.exp(each.value - top) }));
    const [own, total] = [terms[j].value, sum(terms)];
    return { formula: "w_ij = {exp ( m_ij − max )|∑_j exp ( m_ij − max )}", terms, term: "exp(m − max)", mark: j, steps: [["max", top], ["m_ij", row[j].value, row[j].cell], ["exp(m_ij − max)", own], ["∑ exp", total]], result: own / total };
  },
  masked: async (o, site, [head, i, j]) => {
    const [scaled, value] = await Promise.all([o.cell(`${site}.scaled`, head, i, j), o.cell(`${site}.masked`, head, i, j)]);
    return { formula: "m_ij = c_ij + mask_ij", terms: [product(scaled), product({ value: value.value === -Infinity ? -Infinity : 0, name: "mask" })] };
  },
  scaled: async (o, site, [head, i, j]) => {
    const score = await o.cell(`${site}.scores`, head, i, j);
    return { formula: "c_ij = {s_ij|√(d_k)}", terms: [product(score, { value: 1 / Math.sqrt(o.shape.head_width), name: `1 / √${o.shape.head_width}` })] };
  },
  scores: async (o, site, [head, i, j]) => {
    const [query, key] = await Promise.all([o.cells(`${site}.query`, head, i), o.cells(`${site}.key`, o.group(head), j)]);
    return { formula: "s_ij = ∑_n q_in · k_jn", terms: query.map((each, n) => product(each, key[n])) };
  },
  context: async (o, site, [head, i, n]) => {
    const [row, values] = await Promise.all([o.cells(`${site}.weights`, head, i), o.tensor(`${site}.value`)]);
    const group = o.group(head);
    return { formula: "z_in = ∑_j w_ij · v_jn", terms: row.map((each, j) => product(each, { value: values.at(group, j, n), cell: `${site}.value:${[group, j, n]}` })) };
  },
  output: async (o, site, [i, n]) => {
    const heads = await Promise.all(Array.from({ length: o.shape.heads }, (_, head) => o.cells(`${site}.context`, head, i)));
    return o.dot(heads.flat(), `${site}.output`, n, "y_n = ∑_m z_m · W_nm");
  },
  contributions: async (o, site, [head, i, n]) => {
    const [part, row] = await Promise.all([o.cells(`${site}.context`, head, i), o.cells(`${site}.output.weight`, n)]);
    return { formula: "y_n = ∑_m z_m · W_nm", terms: part.map((each, m) => product(each, row[head * part.length + m])) };
  },
};

/** A query, key or value: a row of a weight times what is read; with rotary positions, turned. */
async function projected(o, [stack, layer, part, letter, before], [head, position, n]) {
  const site = `${stack}.layers.${layer}.${part}_attention`;
  const source = part === "cross" && letter !== "query" ? "encoder.states" : o.input(stack, Number(layer), part);
  const width = letter === "value" ? o.shape.head_value_width : o.shape.head_width;
  const flat = async (m) => o.dot(await o.cells(source, position), `${site}.${letter}`, head * width + m, `${letter[0]}_n = ∑_d x_d · W_nd`);
  if (before || letter === "value" || part === "cross" || o.shape.positions !== "rotary") return flat(n);
  const half = width / 2;
  const angle = position * o.shape.rotary_base ** ((-2 * (n % half)) / width);
  const pair = [n, n < half ? n + half : n - half];
  const [own, other] = (await Promise.all(pair.map(flat))).map((origin, m) => ({ value: sum(origin.terms), cell: `${site}.${letter}.unrotated:${[head, position, pair[m]]}` }));
  const turn = { value: n < half ? -Math.sin(angle) : Math.sin(angle), name: n < half ? "−sin θ" : "sin θ" };
  return { formula: n < half ? "a_n cos θ − a_m sin θ" : "a_n cos θ + a_m sin θ", terms: [product(own, { value: Math.cos(angle), name: "cos θ" }), product(other, turn)], steps: [["θ", angle]] };
}

/** A position's vector: sine and cosine, or a learned row. */
async function position(o, embedding, [place, column]) {
  const table = `${embedding}.positions.table`;
  if (table in o.model.weights) return o.added("p_n = P_in", [table, place, column]);
  const halves = o.shape.positions === "sinusoidal-halves";
  const pairs = o.shape.width / 2;
  const wave = halves ? column % pairs : Math.floor(column / 2);
  const sine = halves ? column < pairs : column % 2 === 0;
  const angle = place / 10000 ** (wave / pairs);
  return { formula: `p_n = ${sine ? "sin" : "cos"} {i|10000^(${wave}/${pairs})}`, terms: [], steps: [["i", place], [`i / 10000^(${wave}/${pairs})`, angle]], result: sine ? Math.sin(angle) : Math.cos(angle) };
}

/** Tokens, positions and segments to the vector that enters a stack. */
const EMBEDDING = {
  tokens: async (o, name, [place, column]) => {
    const text = Object.keys(o.model.embeddings).find((each) => o.model.embeddings[each] === name);
    const table = o.model.tables?.[text] ?? `${name}.tokens.weight`;
    const row = await o.cell(table, o.run.tokens(text)[place].id, column);
    return { formula: `x_n = E_tn${o.model.scale === 1 ? "" : " · √d"}`, terms: [product(row, { value: o.model.scale, name: "× √d" })] };
  },
  positions: position,
  segments: async (o, name, [place, column]) => {
    const table = `${name}.segments.weight`;
    const [{ value }, all] = [await o.cell(`${name}.segments`, place, column), await weight(table)];
    const row = Math.max(0, Array.from({ length: all.shape[0] }, (_, n) => all.at(n, column)).indexOf(value));
    return o.added("s_n = S_tn", [table, row, column]);
  },
  sum: (o, name, index) => o.added("x = E + P", ...["tokens", "positions", "segments"].map((part) => `${name}.${part}`).filter((part) => o.run.has(part)).map((part) => [part, ...index])),
  norm: (o, name, [place, column]) => o.norm(`${name}.sum`, `${name}.norm`, place, column),
};

/** The feed-forward layer. */
const FEED_FORWARD = {
  rise: async (o, [stack, layer], [i, n], name = "rise") => o.dot(await o.cells(o.input(stack, Number(layer), "feed_forward"), i), `${stack}.layers.${layer}.feed_forward.${name}`, n, "u_n = ∑_d x_d · W_nd"),
  gate: (o, place, index) => FEED_FORWARD.rise(o, place, index, "gate"),
  active: async (o, [stack, layer], index) => {
    const site = `${stack}.layers.${layer}.feed_forward`;
    const rise = await o.cell(`${site}.rise`, ...index);
    const act = o.shape.activation;
    if (act !== "swiglu") return { formula: `a = ${act} ( u )`, terms: [{ factors: [rise], value: ACTIVATIONS[act](rise.value) }], term: act };
    const gate = await o.cell(`${site}.gate`, ...index);
    const open = ACTIVATIONS.swiglu(gate.value);
    return { formula: "a = silu ( g ) · u", terms: [{ factors: [gate, rise], value: open * rise.value }], term: "silu(g) · u", steps: [["silu(g)", open]] };
  },
  output: async (o, [stack, layer], [i, n]) => o.dot(await o.cells(`${stack}.layers.${layer}.feed_forward.active`, i), `${stack}.layers.${layer}.feed_forward.fall`, n, "y_n = ∑_m a_m · W_nm"),
};

/** A residual sum and its norm. */
function residual(o, [stack, layer, part, which], [i, n]) {
  const site = `${stack}.layers.${layer}.${part}_residual`;
  const before = o.before(stack, Number(layer), part);
  if (which === "norm") return o.norm(o.shape.norm === "pre" ? before : `${site}.sum`, `${site}.norm`, i, n);
  return o.added("x + f ( x )", [before, i, n], [`${stack}.layers.${layer}.${part}${part === "feed_forward" ? "" : "_attention"}.output`, i, n]);
}

/** What a head on top makes of the states before its logits: a dense layer, its activation and norm; a text is judged on its first state or on their mean. */
async function judged(o, head, states) {
  const { pooler, activation, norm_epsilon, norm_kind } = o.shape;
  const all = head === "label." && o.model.carrier !== "word" ? pooler : head === "fill." ? "fill" : "none";
  if (all === "mean") return states[0].map((_, n) => mean(states.map((row) => row[n])));
  if (all === "none") return null;
  const site = all === "fill" ? "fill" : "pooler";
  const [dense, shift, gain, offset] = await Promise.all(["dense.weight", "dense.bias", "norm.weight", "norm.bias"].map((name) => (`${site}.${name}` in o.model.weights ? weight(`${site}.${name}`) : null)));
  const risen = linear(dense, states[0], shift.data).map(pooler === "tanh" && site === "pooler" ? Math.tanh : ACTIVATIONS[site === "fill" ? activation : "relu"]);
  return gain ? norm(risen, gain.data, offset?.data, norm_epsilon, norm_kind) : risen;
}

/** A logit: its row of the output layer times the state, or what a head makes of it. */
async function logit(o, [head], index) {
  const [i, token] = index.length > 1 ? index : [0, index[0]];
  const name = `${Object.keys(o.model.stacks).at(-1)}.states`;
  const whole = index.length < 2 && o.shape.pooler === "mean" ? await o.tensor(name) : null;
  const x = await o.cells(name, i);
  const made = head ? await judged(o, head, whole ? Array.from({ length: whole.shape[0] }, (_, n) => Array.from(whole.row(n))) : [x.map((each) => each.value)]) : null;
  const { weight: table, bias } = o.model.output;
  const [row, own] = await Promise.all([o.cells(table, token), bias ? o.cell(bias, token) : null]);
  const terms = x.map((each, n) => product(made ? { ...each, value: made[n] } : each, row[n]));
  return { formula: `l = ∑_n h_n · E_tn${own ? " + b" : ""}`, terms: own ? [...terms, product(own)] : terms, note: made ? "made" : "" };
}

const RULES = [
  [/^(\w+)\.layers\.(\d+)\.(self|cross)_attention\.(query|key|value)(\.unrotated)?$/, projected],
  [/^(\w+\.layers\.\d+\.\w+_attention)\.(\w+)$/, (o, [site, part], index) => ATTENTION[part]?.(o, site, index)],
  [/^(\w+)\.layers\.(\d+)\.(self|cross|feed_forward)_residual\.(sum|norm)$/, residual],
  [/^(\w+)\.layers\.(\d+)\.feed_forward\.(\w+)$/, (o, [stack, layer, part], index) => FEED_FORWARD[part]?.(o, [stack, layer], index)],
  [/^(\w*embedding)\.(tokens|positions|segments|sum|norm)$/, (o, [name, part], index) => EMBEDDING[part](o, name, index)],
  [/^(\w+)\.states$/, (o, [stack], [i, n]) => {
    const last = o.before(stack, o.model.stacks[stack].layers, "self");
    return o.shape.norm === "pre" ? o.norm(last, `${stack}.norm`, i, n) : o.added("h = x", [last, i, n]);
  }],
  [/^(fill\.|label\.)?logits$/, logit],
];
