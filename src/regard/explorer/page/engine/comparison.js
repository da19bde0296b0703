/** Compares the engine's tensors of the model's example with those that PyTorch computed when the page was published. */

import { readSafetensors } from "../safetensors-reader.js";

/** The largest difference, relative to the largest number of its tensor, and the number of tensors that were compared. */
export async function compareWithPyTorch(model) {
  const expected = readSafetensors(await model.read("pytorch.safetensors"));
  const run = await model.run(model.details.example);
  let delta = 0;
  for (const [name, { data }] of expected) {
    const ours = run.tensor(name).data;
    const size = Math.max(1e-2, data.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0));
    data.forEach((x, i) => {
      if (x !== ours[i]) delta = Math.max(delta, Number.isNaN(x - ours[i]) ? Infinity : Math.abs(x - ours[i]) / size);
    });
    if (data.length !== ours.length) delta = Infinity; // the engine's output has another length
  }
  return { delta, tensors: expected.size, text: model.details.example.text };
}
