// The worker of the page: unpacks the engine and the model, and translates; of several texts, only the last one.
import { Translator } from "./translator.js";

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

let translator, latest = 0;

async function open({ engine, model, vocabularies, settings }) {
  const [wasm, packed, json] = await Promise.all([engine, model, vocabularies].map(unpack));
  translator = await Translator.create(wasm, packed, settings, JSON.parse(new TextDecoder().decode(json)));
  postMessage({ ready: true });
}

async function translate({ number, text, into }) {
  latest = number;
  const started = performance.now();
  for (const made of translator.translate(text, into)) {
    postMessage({ number, made });
    await new Promise((resolve) => setTimeout(resolve)); // a newer text may have come
    if (latest !== number) return;
  }
  postMessage({ number, done: true, milliseconds: performance.now() - started });
}

let opening;
onmessage = async ({ data }) => {
  try {
    if (data.engine) await (opening = open(data));
    else await opening.then(() => translate(data), () => {});
  } catch (error) {
    postMessage({ number: data.number, error: error.message });
  }
};
