/** Records every value of a pass by name, with the meaning of its axes; an edit replaces a value before it is used. */

import { Tensor } from "../safetensors-reader.js";

export class Trace {
  /** `edits` maps names of tensors to functions of their numbers and shape; `twoTexts` is true of an encoder-decoder. */
  constructor(edits, twoTexts) {
    this.edits = edits;
    this.twoTexts = twoTexts;
    this.seen = new Map();
  }

  /** Records the value `name` of the module `place`, and returns its numbers, or those of its edit. */
  see(place, name, axes, shape, data) {
    const full = place ? `${place}.${name}` : name;
    const edit = this.edits.get(full);
    const used = edit ? edit(data, shape) : data;
    this.seen.set(full, { shape, axes: this.fullAxes(place, axes), compute: () => used });
    return used;
  }

  /** Records a value that is computed when it is asked for: nothing else depends on it. */
  later(place, name, axes, shape, make) {
    let data = null;
    this.seen.set(`${place}.${name}`, { shape, axes: this.fullAxes(place, axes), compute: () => (data ??= make()) });
  }

  /** Adds the text that each axis belongs to: the `key` of a cross-attention is `key:source`. */
  fullAxes(place, axes) {
    const here = !this.twoTexts ? "text" : /^(encoder|source)/.test(place) ? "source" : "target";
    const texts = { query: here, position: here, key: place.includes("cross_attention") ? "source" : here };
    return axes.split(" ").map((axis) => (texts[axis] ? `${axis}:${texts[axis]}` : axis));
  }

  data(name) {
    return this.seen.get(name).compute();
  }

  tensor(name) {
    const { shape, axes } = this.seen.get(name);
    return new Tensor(name, shape, axes, this.data(name));
  }
}
