/** English texts of a published page, in which the model runs. */

export const strings = {
  "published.engine": "the engine in this page",
  "published.loading": "Loading the model: {loaded} of {total} MB.",
  "published.noEngine": "The model cannot start in this browser: update it, then reload this page.",
  "published.inPage": "The model runs in this page: what you type does not leave it.",
  "published.compare": "compare with PyTorch",
  "published.compared": "Largest difference from PyTorch in {tensors} tensors of “{text}”: {delta} of the tensor's largest number {mark}",
};
