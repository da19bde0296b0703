/** The random numbers of Python's `random.Random`, so that sampling draws the same tokens as the command line. */

/** The CRC-32 of a text in UTF-8. */
export function crc32(text) {
  let crc = ~0;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return ~crc >>> 0;
}

/** The random numbers of one output of a text, which depend only on the seed, the number of the output and the ids. */
export const randomSource = (ids, number, seed) => new MersenneTwister(crc32(`(${seed}, ${number}, [${ids.join(", ")}])`));

/** MT19937 (Matsumoto & Nishimura, 1998), seeded with one whole number of 32 bits as Python seeds it. */
export class MersenneTwister {
  constructor(seed) {
    const state = new Uint32Array(624);
    state[0] = 19650218;
    for (let i = 1; i < 624; i++) state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
    let i = 1;
    const next = () => {
      if (++i === 624) [state[0], i] = [state[623], 1];
    };
    for (let k = 0; k < 624; k++, next()) state[i] = (state[i] ^ Math.imul(state[i - 1] ^ (state[i - 1] >>> 30), 1664525)) + seed;
    for (let k = 0; k < 623; k++, next()) state[i] = (state[i] ^ Math.imul(state[i - 1] ^ (state[i - 1] >>> 30), 1566083941)) - i;
    state[0] = 0x80000000;
    this.state = state;
    this.place = 624;
  }

  /** 32 random bits. */
  bits() {
    if (this.place === 624) this.twist();
    let y = this.state[this.place++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  twist() {
    const { state } = this;
    for (let i = 0; i < 624; i++) {
      const y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
      state[i] = state[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    this.place = 0;
  }

  /** A number in [0, 1) of 53 random bits. */
  random() {
    const high = this.bits() >>> 5;
    const low = this.bits() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }
}
