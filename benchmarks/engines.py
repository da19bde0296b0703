"""Whether CTranslate2 and onnxruntime say what Regard says: `python benchmarks/engines.py runs/en-de sentences.en`.

Exports a model to both, runs the lines of a text file through all three, and prints how many outputs are equal and how
far the log-probabilities of their tokens, or the states of an encoder, lie apart. Exits with 1 if outputs differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import records
from regard.decoding.fill_classify_embed import Embedder, Row
from regard.decoding.pytorch_engine import translator_of, writer_of
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.interop import ctranslate2 as to_ctranslate2, onnx as to_onnx
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.settings import ModelSettings
from regard.tokens.tokenizer import Tokenizer
from regard.weights import Contents, read_folder

BEAM, ALPHA = 5, 1.0
PATIENCE = 1000  # times BEAM outputs, and CTranslate2 stops; Regard, asked for patience 0, when nothing better can come
CONTINUATION = 32  # tokens that are written after a prompt
CLOSE = 1e-3  # states that are further apart are different
Array = NDArray[Any]
FOUND: list[dict[str, object]] = []  # what is told


@dataclass(frozen=True)
class Output:
    """What an engine says: tokens as people see them, and the log-probability of each."""

    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a model folder")
    parser.add_argument("texts", type=Path, help="a text file, one text a line")
    parser.add_argument("--count", type=int, default=200, help="lines that are taken")
    records.add_keep(parser)
    options = parser.parse_args()
    contents = read_folder(options.folder)
    with options.texts.open(encoding="utf-8") as lines, tempfile.TemporaryDirectory() as place:
        texts = list(islice((line.strip() for line in lines if line.strip()), options.count))
        exports = Path(place) / "ctranslate2", Path(place) / "onnx"
        for export, output in zip((to_ctranslate2.export_model, to_onnx.export_model), exports, strict=True):
            for note in export(options.folder, output):
                print(f"note: {note}")
        model = contents.model
        compare = compare_readers if isinstance(model, Encoder) else compare_writers
        if isinstance(model, EncoderDecoder):
            compare = compare_translators
        good = compare(contents, texts, *exports)
    if options.keep:
        versions = {"CTranslate2": ctranslate2.__version__, "onnxruntime": onnxruntime.__version__}
        title = f"{options.folder.name}, {len(texts)} lines of {options.texts.name}"
        records.keep("engines", [records.table(title, FOUND)], versions=versions)
    sys.exit(0 if good else 1)


def report(name: str, expected: Sequence[Output], found: Sequence[Output]) -> bool:
    """Prints how many outputs are equal, and those that are not."""
    apart = 0.0
    different = [(ours, theirs) for ours, theirs in zip(expected, found, strict=True) if ours.tokens != theirs.tokens]
    for ours, theirs in zip(expected, found, strict=True):
        if ours.tokens == theirs.tokens:
            pairs = zip(ours.log_probabilities, theirs.log_probabilities, strict=False)
            apart = max([apart, *(abs(a - b) for a, b in pairs)])
    equal = f"{len(expected) - len(different)} of {len(expected)} outputs are equal"
    FOUND.append({"engine": name, "outputs": equal, "log-probabilities of tokens differ by at most": f"{apart:.1e}"})
    print(f"{name}: {equal}; log-probabilities of tokens differ by at most {apart:.1e}")
    for ours, theirs in different[:5]:
        print(f"    Regard  {sum(ours.log_probabilities):9.4f}  {''.join(ours.tokens)}")
        print(f"    other   {sum(theirs.log_probabilities):9.4f}  {''.join(theirs.tokens)}")
    return not different


def pieces(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    return [str(tokenizer.model.id_to_token(token)) for token in ids]


def shown(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[str, ...]:
    return tuple(tokenizer.pieces(ids))


def never(tokenizer: Tokenizer) -> list[list[str]]:
    return [[piece] for piece in pieces(tokenizer, tokenizer.specials.never_generated)]


# Translators


def compare_translators(contents: Contents, texts: Sequence[str], first: Path, second: Path) -> bool:
    """Greedy with both engines, and beam search with CTranslate2."""
    translator = translator_of(contents)
    longest = contents.settings.model.max_length
    sources = [ids for ids in translator.source.encode_batch(texts) if 0 < len(ids) < longest]
    limits = [int(min(2 * len(ids) + 20, longest)) for ids in sources]
    engine = ctranslate2.Translator(str(first), device="cpu", compute_type="float32")
    good = True
    for beam in (1, BEAM):
        options = {"beam": beam, "penalty": "power", "length_penalty": ALPHA, "max_ratio": 2.0, "patience": 0.0}
        found = translator.search(sources, translator.decoding(options))
        ours = [Output(shown(translator.target, best[0].tokens), best[0].log_probabilities) for best in found]
        theirs = with_ctranslate2(engine, translator, sources, limits, beam, PATIENCE)
        good &= report(f"CTranslate2, beam {beam}", ours, theirs)
        if beam == 1:
            graphs = with_onnx_translator(second, translator, sources, limits)
            good &= report("onnxruntime, greedy", ours, graphs)
        else:
            theirs = with_ctranslate2(engine, translator, sources, limits, beam, 1)
            report(f"CTranslate2, beam {beam}, as it stops by itself (patience 1)", ours, theirs)
    return good


def with_ctranslate2(
    engine: Any,
    translator: Translator,
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    beam: int,
    patience: float,
) -> list[Output]:
    """Sources of one limit together; the log-probabilities are of a second run, which suppresses nothing."""
    found: dict[int, list[str]] = {}
    cut = [pieces(translator.source, ids) for ids in sources]
    for limit in sorted(set(limits)):
        members = [number for number, each in enumerate(limits) if each == limit]
        results = engine.translate_batch(
            [cut[number] for number in members],
            beam_size=beam,
            length_penalty=ALPHA,
            patience=patience,
            min_decoding_length=0,
            max_decoding_length=limit,
            suppress_sequences=never(translator.target),
        )
        found.update({number: result.hypotheses[0] for number, result in zip(members, results, strict=True)})
    targets = [found[number] for number in range(len(sources))]
    scored = engine.score_batch(cut, targets)
    ids = [[translator.target.model.token_to_id(piece) or 0 for piece in target] for target in targets]
    return [
        Output(shown(translator.target, row), tuple(result.log_probs)) for row, result in zip(ids, scored, strict=True)
    ]


def with_onnx_translator(
    folder: Path, translator: Translator, sources: Sequence[Sequence[int]], limits: Sequence[int]
) -> list[Output]:
    """One source at a time."""
    encoder, decoder = (onnxruntime.InferenceSession(str(folder / f"{name}.onnx")) for name in ("encoder", "decoder"))
    specials, outputs = translator.target.specials, []
    for ids, limit in zip(sources, limits, strict=True):
        tokens = np.array([[*ids, specials.end]], np.int64)
        keep = np.ones_like(tokens, bool)
        _, keys, values = encoder.run(None, {"tokens": tokens, "keep": keep})
        given = {"keep": keep, "cross_keys": keys, "cross_values": values}
        outputs.append(continue_greedily(decoder, translator.target, [specials.begin], limit, given, translator))
    return outputs


def continue_greedily(
    decoder: Any,
    tokenizer: Tokenizer,
    start: Sequence[int],
    limit: int,
    given: dict[str, Array],
    engine: Translator | Writer,
) -> Output:
    """The most probable token again and again, with an ONNX decoder."""
    shape, specials = engine.settings.model, tokenizer.specials
    keys, values = no_past(shape)
    new, tokens, gains = np.array([start], np.int64), list[int](), list[float]()
    while len(gains) < limit:
        inputs = {"tokens": new, "past_keys": keys, "past_values": values, **given}
        logits, keys, values = decoder.run(None, inputs)
        scores = torch.from_numpy(logits[0, -1]).log_softmax(-1)
        scores[specials.never_generated] = -torch.inf
        token = int(scores.argmax())
        gains.append(float(scores[token]))
        if token == specials.end:
            break
        tokens.append(token)
        new = np.array([[token]], np.int64)
    return Output(shown(tokenizer, tokens), tuple(gains))


def no_past(shape: ModelSettings) -> tuple[Array, Array]:
    axes = (shape.decoder_layers, 1, shape.query_groups, 0)
    return np.zeros((*axes, shape.head_width), np.float32), np.zeros((*axes, shape.head_value_width), np.float32)


# Writers


def compare_writers(contents: Contents, texts: Sequence[str], first: Path, second: Path) -> bool:
    """Continuations of the first half of every line, greedy with both engines, beam search with CTranslate2."""
    assert isinstance(contents.model, Decoder)
    writer, room = writer_of(contents), contents.settings.model.max_length - CONTINUATION - 1
    halves = [text[: len(text) // 2 + 1] for text in texts]
    prompts = [text for text in halves if len(writer.prompt(text)) <= room]
    rows = [writer.prompt(text) for text in prompts]
    engine = ctranslate2.Generator(str(first), device="cpu", compute_type="float32")
    tokenizer, good = writer.vocabulary, True
    for beam in (1, BEAM):
        options: dict[str, Any] = {"beam": beam, "penalty": "power", "length_penalty": ALPHA}
        written = writer.write(prompts, max_tokens=CONTINUATION, temperature=0, **options)
        ours = [Output(found.tokens, found.token_log_probabilities) for found in written]
        theirs = [with_generator(engine, tokenizer, row, beam) for row in rows]
        good &= report(f"CTranslate2, beam {beam}", ours, theirs)
        if beam == 1:
            session = onnxruntime.InferenceSession(str(second / "decoder.onnx"))
            graphs = [continue_greedily(session, tokenizer, row, CONTINUATION, {}, writer) for row in rows]
            good &= report("onnxruntime, greedy", ours, graphs)
    return good


def with_generator(engine: Any, tokenizer: Tokenizer, row: Sequence[int], beam: int) -> Output:
    """A continuation by CTranslate2; the log-probabilities are of a second run, which suppresses nothing."""
    start = pieces(tokenizer, row)
    (result,) = engine.generate_batch(
        [start],
        beam_size=beam,
        length_penalty=ALPHA,
        patience=PATIENCE,
        min_length=0,
        max_length=CONTINUATION,
        suppress_sequences=never(tokenizer),
        include_prompt_in_result=False,
    )
    tokens = result.sequences_ids[0]
    whole = [*start, *pieces(tokenizer, tokens), *pieces(tokenizer, [tokenizer.specials.end])]
    (scored,) = engine.score_batch([whole])
    return Output(shown(tokenizer, tokens), tuple(scored.log_probs[len(start) - 1 :]))


# Readers


def compare_readers(contents: Contents, texts: Sequence[str], first: Path, second: Path) -> bool:
    """The states with both engines, and with onnxruntime what the heads prefer."""
    reader, model = Embedder(contents), contents.model
    assert isinstance(model, Encoder)
    engine = ctranslate2.Encoder(str(first), device="cpu", compute_type="float32")
    session = onnxruntime.InferenceSession(str(second / "encoder.onnx"))
    names = [output.name for output in session.get_outputs()]
    apart, preferred = {"CTranslate2": 0.0, "onnxruntime": 0.0}, [0, 0]
    for row in reader.rows(texts):
        inputs = one_row(row)
        with torch.inference_mode():
            states = model(torch.tensor([row.ids]), None, torch.tensor([row.segments]))
            heads = what_heads_say(contents, model, states)
        wanted = inputs if model.embedding.segments else {k: v for k, v in inputs.items() if k != "segments"}
        found = dict(zip(names, session.run(None, wanted), strict=True))
        segments = {"token_type_ids": [row.segments]} if model.embedding.segments else {}
        others = {
            "CTranslate2": np.array(engine.forward_batch([row.ids], **segments).last_hidden_state),
            "onnxruntime": found["states"],
        }
        for name, other in others.items():
            apart[name] = max(apart[name], float(np.abs(other - states.numpy()).max()))
        for name, logits in heads.items():
            same = logits.argmax(-1).numpy() == found[name].argmax(-1)
            preferred = [preferred[0] + int(same.sum()), preferred[1] + same.size]
    for name, distance in apart.items():
        print(f"{name}: states differ by at most {distance:.1e}")
        FOUND.append({"engine": name, "states differ by at most": f"{distance:.1e}"})
    print(f"onnxruntime: {preferred[0]:,} of {preferred[1]:,} preferences of the heads are equal")
    return max(apart.values()) < CLOSE and preferred[0] == preferred[1]


def one_row(row: Row) -> dict[str, Array]:
    tokens = np.array([row.ids], np.int64)
    return {"tokens": tokens, "keep": np.ones_like(tokens, bool), "segments": np.array([row.segments], np.int64)}


def what_heads_say(contents: Contents, model: Encoder, states: torch.Tensor) -> dict[str, torch.Tensor]:
    """The logits of each head by the name that the export gives them."""
    found = {}
    if model.fill is not None:
        found["fill_logits"] = model.fill(states)
    if model.label is not None:
        words = contents.settings.data.carrier == "word"
        found["label_logits"] = model.label(states if words else model.judge(states, None))
    if model.follows is not None:
        found["follows_logits"] = model.follows(model.judge(states, None))
    return found


if __name__ == "__main__":
    main()
