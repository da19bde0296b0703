/** English texts of the page's frame and of several views. */

export const strings = {
  "view.whole": "Model", "view.journey": "Journey", "view.atlas": "Attention", "view.head": "Head", "view.microscope": "Microscope", "view.decoding": "Decoding", "view.beam": "Beam", "view.lens": "Lens", "view.whatif": "What if", "view.positions": "Positions", "view.space": "Embeddings", "view.alignment": "Alignment", "view.time": "Training", "view.weights": "Weights", "view.output": "Output",
  "side.a": "A", "side.b": "B", "side.diff": "B − A",
  "stack.encoder": "encoder", "stack.decoder": "decoder",
  "kind.self_attention": "self-attention", "kind.cross_attention": "cross-attention", "kind.feed_forward": "feed-forward",
  "text.source": "source", "text.target": "target", "text.text": "text",
  "map.title": "The model", "map.output": "linear, softmax", "map.heads": "states", "map.memory": "memory →", "map.embedding": "embedding", "map.position": "position",
  "map.width": "width {n}", "map.hidden": "feed-forward {n}", "map.heads2": "{n} heads of {k}", "map.post": "post-norm", "map.pre": "pre-norm", "map.tied": "output tied to the embedding", "map.untied": "output of its own",
  "map.pos.sinusoidal": "sinusoidal positions", "map.pos.sinusoidal-halves": "sinusoidal positions in halves", "map.pos.learned": "learned positions", "map.pos.rotary": "rotary positions", "map.pos.none": "no positions",
  sentence: "Sentence", prompt: "Text to continue", forced: "Output", forcedEmpty: "empty: the model decides", secondText: "Second text", run: "Run",
  decodingSettings: "How it decodes", beamWidth: "beam", lengthPenalty: "length penalty", temperature: "temperature", seed: "seed", maxTokens: "at most",
  model: "model", parameters: "{n} parameters", colour: "colours", "colour.one": "from 0 to 1", "colour.range": "to the largest number", "colour.row": "to the largest of each row", "colour.rangeEnd": "largest of the picture", "colour.rowEnd": "largest of its row", rareWords: "Probably unknown to the model:", rareWhy: "They are split into single letters or bytes, whereas the vocabulary has frequent words whole. The output for them may be nonsense.", more: "more", present: "present", copyLink: "copy link", offline: "saved run, no server", offlineMissing: "This is not in the saved file: open the model with regard look to see it.", language: "language",
  attention: "attention", layer: "layer", head: "head", badLink: "The address of this page is not right: {key} = {text}", noServer: "The server does not answer: start regard look again, then reload this page.", showsA: "This view has no difference to show: this is A.", finalWeights: "The weights and tables shown here are those of the final model, not of this step of its training.", difference: "B − A", dropB: "drop B", differentShapes: "A and B have different numbers of tokens, so they cannot be subtracted: show them side by side.",
  honest: "Attention is not alignment and not an explanation: it says where a head looked, not what that changed.", "honest.effect": "The effect of leaving a head out stands beside it in the Attention view.",
  row: "row", column: "column", firstRows: "the first {n} of {of} rows", vector: "vector", range: "colours from {low} to {high}", table: "table", asTable: "as a table", copyPython: "copy as Python",
  "beam.not": "not among the best", "beam.outdone": "beaten at step {n}", "beam.search": "the search was settled", "beam.length": "length limit", "beam.ended": "ended",
  lesson: "Lesson", "lesson.none": "none", "lesson.print": "print as a worksheet", "lesson.close": "close the lesson", "lesson.openModel": "Open it with {model}.", "lesson.otherModel": "This lesson is about the model {model}: its answers may differ here.",
  "lesson.guess": "your guess", "lesson.reveal": "Ask the model", "lesson.yes": "yes", "lesson.no": "no", "lesson.right": "as you guessed", "lesson.other": "not as you guessed", "lesson.model": "The model:", "lesson.missing": "there is no such lesson here",
};
