"""Compares CTranslate2 and onnxruntime with Regard: `python benchmarks/engines.py runs/en-de sentences.en`.

Exports a model to both, runs the lines of a text file through all three, and reports how many outputs are equal and
the largest difference of the log-probabilities of their tokens, or of the states of an encoder. Exits with 1 if
outputs differ.
"""

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

from benchmarks import program, records, tables
from regard.decoding.fill_classify_embed import Embedder
from regard.decoding.pytorch_engine import translator_of, writer_of
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.interop import ctranslate2 as to_ctranslate2, onnx as to_onnx
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.tokens.tokenizer import Tokenizer
from regard.weights import Contents, read_folder

BEAM = 5
PATIENCE = 1000  # times BEAM outputs, and CTranslate2 stops; Regard, with patience 0, when nothing better can come
SEARCH: dict[str, Any] = {"penalty": "power", "length_penalty": 1.0}
CONTINUATION = 32  # tokens that are written after a prompt
CLOSE = 1e-3  # states that are further apart are different
Array = NDArray[Any]
Result = tuple[bool, list[tables.Row]]  # whether all outputs are equal, and the rows of the table


@dataclass(frozen=True)
class Output:
    """The output of an engine: tokens as people see them, and the log-probability of each."""

    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("folder", type=Path, help="a model folder")
    parser.add_argument("texts", type=Path, help="a text file, one text per line")
    parser.add_argument("--count", type=int, default=200, help="lines to run")
    options = parser.parse_args()
    contents = read_folder(options.folder)
    with options.texts.open(encoding="utf-8") as lines, tempfile.TemporaryDirectory() as place:
        texts = list(islice((line.strip() for line in lines if line.strip()), options.count))
        exports = Path(place) / "ctranslate2", Path(place) / "onnx"
        for export, output in zip((to_ctranslate2.export_model, to_onnx.export_model), exports, strict=True):
            for note in export(options.folder, output):
                print(f"note: {note}")
        kinds = {EncoderDecoder: compare_translators, Encoder: compare_encoders, Decoder: compare_writers}
        equal, rows = kinds[type(contents.model)](contents, texts, *exports)
    table = tables.build(f"{options.folder.name}, {len(texts)} lines of {options.texts.name}", rows)
    versions = {"CTranslate2": ctranslate2.__version__, "onnxruntime": onnxruntime.__version__}
    records.publish(options.keep, "engines", [table], versions=versions)
    sys.exit(0 if equal else 1)


def compare(name: str, expected: Sequence[Output], found: Sequence[Output]) -> Result:
    """Counts equal outputs, and prints the first different ones."""
    pairs = list(zip(expected, found, strict=True))
    different = [(ours, theirs) for ours, theirs in pairs if ours.tokens != theirs.tokens]
    gaps = [
        abs(a - b)
        for ours, theirs in pairs
        if ours.tokens == theirs.tokens
        for a, b in zip(ours.log_probabilities, theirs.log_probabilities, strict=False)
    ]
    for ours, theirs in different[:5]:
        print(f"{name}:\n    Regard  {sum(ours.log_probabilities):9.4f}  {''.join(ours.tokens)}")
        print(f"    other   {sum(theirs.log_probabilities):9.4f}  {''.join(theirs.tokens)}")
    equal = f"{len(pairs) - len(different)} of {len(pairs)} outputs are equal"
    apart = f"{max(gaps, default=0.0):.1e}"
    return not different, [{"engine": name, "outputs": equal, "log-probabilities of tokens differ by at most": apart}]


def pieces(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    return [str(tokenizer.model.id_to_token(token)) for token in ids]


def displayed(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[str, ...]:
    return tuple(tokenizer.pieces(ids))


def ctranslate2_search(tokenizer: Tokenizer, beam: int, patience: float) -> dict[str, Any]:
    never = [[piece] for piece in pieces(tokenizer, tokenizer.specials.never_generated)]
    return {"beam_size": beam, "length_penalty": 1.0, "patience": patience, "suppress_sequences": never}


# Translators


def compare_translators(contents: Contents, texts: Sequence[str], first: Path, second: Path) -> Result:
    """Compares greedy outputs of both engines, and beam search of CTranslate2."""
    translator, longest = translator_of(contents), contents.settings.model.max_length
    sources = [ids for ids in translator.source.encode_batch(texts) if 0 < len(ids) < longest]
    limits = [int(min(2 * len(ids) + 20, longest)) for ids in sources]
    engine, results = ctranslate2.Translator(str(first), device="cpu", compute_type="float32"), []
    for beam in (1, BEAM):
        found = translator.search(
            sources, translator.decoding({**SEARCH, "beam": beam, "max_ratio": 2.0, "patience": 0.0})
        )
        ours = [Output(displayed(translator.target, best[0].tokens), best[0].log_probabilities) for best in found]
        theirs = with_ctranslate2(engine, translator, sources, limits, beam, PATIENCE)
        results.append(compare(f"CTranslate2, beam {beam}", ours, theirs))
        if beam == 1:
            graphs = with_onnx_translator(second, translator, sources, limits)
            results.append(compare("onnxruntime, greedy", ours, graphs))
    theirs = with_ctranslate2(engine, translator, sources, limits, BEAM, 1)
    _, rows = compare(f"CTranslate2, beam {BEAM}, as it stops by itself (patience 1)", ours, theirs)
    return combined([*results, (True, rows)])


def combined(results: Sequence[Result]) -> Result:
    return all(equal for equal, _ in results), [row for _, rows in results for row in rows]


def with_ctranslate2(
    engine: Any,
    translator: Translator,
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    beam: int,
    patience: float,
) -> list[Output]:
    """Translates one source at a time; the log-probabilities are of a second run, which suppresses nothing."""
    outputs, search = [], ctranslate2_search(translator.target, beam, patience)
    for ids, limit in zip(sources, limits, strict=True):
        source = pieces(translator.source, ids)
        lengths = {"min_decoding_length": 0, "max_decoding_length": limit}
        (result,) = engine.translate_batch([source], **lengths, **search)
        (scored,) = engine.score_batch([source], [result.hypotheses[0]])
        tokens = [translator.target.model.token_to_id(piece) or 0 for piece in result.hypotheses[0]]
        outputs.append(Output(displayed(translator.target, tokens), tuple(scored.log_probs)))
    return outputs


def with_onnx_translator(
    folder: Path, translator: Translator, sources: Sequence[Sequence[int]], limits: Sequence[int]
) -> list[Output]:
    """Translates one source at a time."""
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
    """Continues greedily with an ONNX decoder."""
    shape, specials = engine.settings.model, tokenizer.specials
    axes, widths = (shape.decoder_layers, 1, shape.query_groups, 0), (shape.head_width, shape.head_value_width)
    keys, values = (np.zeros((*axes, width), np.float32) for width in widths)  # no past
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
    return Output(displayed(tokenizer, tokens), tuple(gains))


# Writers


def compare_writers(contents: Contents, texts: Sequence[str], first: Path, second: Path) -> Result:
    """Compares continuations of the first half of every line, as translations are compared."""
    writer, room = writer_of(contents), contents.settings.model.max_length - CONTINUATION - 1
    prompts = [half for text in texts if len(writer.prompt(half := text[: len(text) // 2 + 1])) <= room]
    rows, tokenizer, results = [writer.prompt(text) for text in prompts], writer.vocabulary, list[Result]()
    engine = ctranslate2.Generator(str(first), device="cpu", compute_type="float32")
    for beam in (1, BEAM):
        written = writer.write(prompts, max_tokens=CONTINUATION, temperature=0, beam=beam, **SEARCH)
        ours = [Output(found.tokens, found.token_log_probabilities) for found in written]
        theirs = [with_generator(engine, tokenizer, row, beam) for row in rows]
        results.append(compare(f"CTranslate2, beam {beam}", ours, theirs))
        if beam == 1:
            session = onnxruntime.InferenceSession(str(second / "decoder.onnx"))
            graphs = [continue_greedily(session, tokenizer, row, CONTINUATION, {}, writer) for row in rows]
            results.append(compare("onnxruntime, greedy", ours, graphs))
    return combined(results)


def with_generator(engine: Any, tokenizer: Tokenizer, row: Sequence[int], beam: int) -> Output:
    """Continues with CTranslate2; the log-probabilities are of a second run, which suppresses nothing."""
    start, lengths = pieces(tokenizer, row), {"min_length": 0, "max_length": CONTINUATION}
    search = ctranslate2_search(tokenizer, beam, PATIENCE)
    (result,) = engine.generate_batch([start], **lengths, **search, include_prompt_in_result=False)
    tokens = result.sequences_ids[0]
    whole = [*start, *pieces(tokenizer, tokens), *pieces(tokenizer, [tokenizer.specials.end])]
    (scored,) = engine.score_batch([whole])
    return Output(displayed(tokenizer, tokens), tuple(scored.log_probs[len(start) - 1 :]))


# Encoders


def compare_encoders(contents: Contents, texts: Sequence[str], first: Path, second: Path) -> Result:
    """Compares the states of both engines, and the preferences of onnxruntime's heads."""
    embedder, model = Embedder(contents), contents.model
    assert isinstance(model, Encoder)
    engine = ctranslate2.Encoder(str(first), device="cpu", compute_type="float32")
    session = onnxruntime.InferenceSession(str(second / "encoder.onnx"))
    names = [output.name for output in session.get_outputs()]
    apart, preferred = {"CTranslate2": 0.0, "onnxruntime": 0.0}, [0, 0]
    for row in embedder.rows(texts):
        with torch.inference_mode():
            states = model(torch.tensor([row.ids]), None, torch.tensor([row.segments]))
            heads = logits_of_heads(contents, model, states)
        tokens = np.array([row.ids], np.int64)
        inputs = {"tokens": tokens, "keep": np.ones_like(tokens, bool)}
        segments = {"token_type_ids": [row.segments]} if model.embedding.segments else {}
        inputs |= {"segments": np.array([row.segments], np.int64)} if segments else {}
        found = dict(zip(names, session.run(None, inputs), strict=True))
        forward = engine.forward_batch([row.ids], **segments).last_hidden_state
        for name, other in {"CTranslate2": np.array(forward), "onnxruntime": found["states"]}.items():
            apart[name] = max(apart[name], float(np.abs(other - states.numpy()).max()))
        for name, logits in heads.items():
            same = logits.argmax(-1).numpy() == found[name].argmax(-1)
            preferred = [preferred[0] + int(same.sum()), preferred[1] + same.size]
    rows: list[tables.Row] = [
        {"engine": name, "states differ by at most": f"{distance:.1e}"} for name, distance in apart.items()
    ]
    print(f"onnxruntime: {preferred[0]:,} of {preferred[1]:,} preferences of the heads are equal")
    return max(apart.values()) < CLOSE and preferred[0] == preferred[1], rows


def logits_of_heads(contents: Contents, model: Encoder, states: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns the logits of each head by the name that the export gives them."""
    found = {}
    if model.fill is not None:
        found["fill_logits"] = model.fill(states)
    if model.label is not None:
        words = contents.settings.data.carrier == "word"
        found["label_logits"] = model.label(states if words else model.pool(states, None))
    if model.follows is not None:
        found["follows_logits"] = model.follows(model.pool(states, None))
    return found


if __name__ == "__main__":
    main()
