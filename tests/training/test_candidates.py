"""Minimum risk: the fast path against the readable one, and what a model is told of its own translations."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from regard.decoding.consensus import SHARPNESS
from regard.decoding.engine import load_as
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.translator import Translator
from regard.errors import SettingsError
from regard.folder import SETTINGS, TRAINING, WEIGHTS
from regard.model.transformer import EncoderDecoder
from regard.settings import ModelSettings
from regard.text.tokenizer import Specials
from regard.training import candidates, objectives
from regard.training.batches import Examples, write_examples
from regard.training.candidates import (
    CANDIDATES,
    DOING,
    SEVERAL,
    UNIT,
    Candidates,
    Found,
    Made,
    RiskBatch,
    find_candidates,
    judge,
)
from regard.training.events import Event, Finished, Progress, Stage
from regard.training.objectives import expected_cost, fused_expected_cost, risk_loss, translation_loss
from regard.training.prepare import NEW
from regard.training.shards import token_type, write_index, write_shard
from regard.training.trainer import resume, train

from .corpora import SMALL, write_reversals

SPECIALS = Specials(pad=0, begin=1, end=2, unknown=3, mask=None)


def invented(seed: int, sources: int, several: int, longest: int = 6) -> list[Found]:
    """Random translations, each with an end and a cost; some sources have one or none."""
    random = np.random.default_rng(seed)
    return [
        [
            ([*random.integers(4, 12, random.integers(0, longest)).tolist(), SPECIALS.end], random.random())
            for _ in range(random.integers(0, several + 1))
        ]
        for _ in range(sources)
    ]


def batch_of(folder: Path, found: list[Found]) -> RiskBatch:
    random = np.random.default_rng(0)
    pairs = [([*random.integers(4, 12, 1 + i % 4)], [*random.integers(4, 12, 2 + i % 3)]) for i in range(len(found))]
    write_examples(folder, pairs, 12)
    rows = np.arange(len(found))
    return RiskBatch(Examples(folder).batch(rows, SPECIALS), found, SPECIALS)


def model() -> EncoderDecoder:
    torch.manual_seed(0)
    shape = ModelSettings(width=16, heads=2, hidden=16, encoder_layers=1, decoder_layers=1, dropout=0.0)
    return EncoderDecoder(shape, 12, 12)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 6), st.booleans(), st.sampled_from([1, 7, 64, 512]))
def test_fused_and_readable_agree_on_risk_and_gradients(
    seed: int, sources: int, several: int, bias: bool, chunk: int
) -> None:
    found = [each for each in invented(seed, sources, several) if len(each) > 1]
    if not found:
        return
    torch.manual_seed(seed)
    rows = [tokens for each in found for tokens, _ in each]
    made = Made(
        target=torch.empty(0),
        labels=torch.empty(0),
        owners=torch.empty(0),
        costs=torch.tensor([cost for each in found for _, cost in each]),
        lengths=torch.tensor([len(tokens) for tokens in rows]),
        weights=torch.rand(len(found)) * 9,
        counts=[len(each) for each in found],
    )
    labels = torch.tensor([token for tokens in rows for token in tokens])
    states, output, results = torch.randn(len(labels), 8), nn.Linear(8, 12, bias), []
    before, objectives.CHUNK = objectives.CHUNK, chunk
    try:
        for function in (expected_cost, fused_expected_cost):
            inputs = states.clone().requires_grad_()
            output.zero_grad()
            risk = function(inputs, output, labels, made)
            (risk * 0.37).backward()
            results.append([risk, inputs.grad, *(p.grad.clone() for p in output.parameters() if p.grad is not None)])
    finally:
        objectives.CHUNK = before
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)


def test_the_risk_is_what_the_model_expects_of_its_own_translations(tmp_path: Path) -> None:
    found: list[Found] = [[([5, 6, 2], 0.25), ([7, 2], 1.0)], [([5, 2], 0.5)]]
    batch, net = batch_of(tmp_path / "pairs", found), model()
    usual = translation_loss(net, batch.pairs, 0.1)
    loss = risk_loss(net, batch, 0.1, 3.0)
    source = batch.pairs.source[:1, :2]
    means = []
    for tokens, _ in found[0]:
        logs = net(source, torch.tensor([[1, *tokens[:-1]]]), None).log_softmax(-1)[0]
        means.append(sum(logs[i, token].item() for i, token in enumerate(tokens)) / len(tokens))
    chances = torch.softmax(SHARPNESS * torch.tensor(means), 0)
    expected = float(chances[0] * 0.25 + chances[1] * 1.0) * 3  # tokens of the target, its end included
    assert loss.total.item() == pytest.approx(usual.total.item() + 3.0 * expected, rel=1e-4)
    assert loss.surprise == pytest.approx(usual.surprise)
    assert loss.tokens == usual.tokens


def test_without_two_translations_of_any_source_the_usual_loss_is_all(tmp_path: Path) -> None:
    batch, net = batch_of(tmp_path / "pairs", [[([5, 2], 0.5)], []]), model()
    assert risk_loss(net, batch, 0.1, 3.0).total.item() == pytest.approx(
        translation_loss(net, batch.pairs, 0.1).total.item()
    )


def test_parts_of_a_batch_have_together_the_loss_of_the_whole(tmp_path: Path) -> None:
    batch, net = batch_of(tmp_path / "pairs", invented(3, 7, 5)), model()
    whole = risk_loss(net, batch, 0.1, 2.0)
    parts = [risk_loss(net, batch.share(part, 3), 0.1, 2.0) for part in range(3)]
    assert sum(part.total.item() for part in parts) == pytest.approx(whole.total.item(), rel=1e-4)
    assert sum(part.tokens for part in parts) == whole.tokens
    assert sum(batch.share(part, 3).seen for part in range(3)) == batch.seen


def test_a_step_against_the_risk_makes_the_better_translation_more_probable(tmp_path: Path) -> None:
    batch, net = batch_of(tmp_path / "pairs", [[([5, 6, 2], 0.1), ([7, 8, 2], 0.9)]]), model()

    def ahead() -> float:
        logs = net(batch.pairs.source.repeat(2, 1), batch.made.target, None).log_softmax(-1)
        good, bad = logs.gather(2, batch.made.labels[..., None]).sum((1, 2)).tolist()
        return float(good - bad)

    before = ahead()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for _ in range(5):
        optimizer.zero_grad()
        (risk_loss(net, batch, 0.0, 100.0).total - translation_loss(net, batch.pairs, 0.0).total).backward()
        optimizer.step()
    assert ahead() > before + 0.5


@given(
    st.lists(st.lists(st.tuples(st.lists(st.integers(4, 500), max_size=5), st.floats(0, 1)), max_size=4), max_size=6)
)
def test_what_is_written_is_read(entries: list[list[tuple[list[int], float]]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rows = [
            ([token for tokens, _ in entry for token in (*tokens, 2)], [round(cost * UNIT) for _, cost in entry])
            for entry in entries
        ]
        shard = write_shard(folder / "00000.bin", rows, token_type(UNIT))
        write_index(folder, [shard], token_type(UNIT))
        found = Candidates(folder, SPECIALS)
        assert len(found) == len(entries)
        for row, entry in enumerate(entries):
            tokens, costs = [each for each, _ in found.of(row)], [cost for _, cost in found.of(row)]
            assert tokens == [[*each, 2] for each, _ in entry]
            assert costs == pytest.approx([cost for _, cost in entry], abs=1 / UNIT)


def test_each_text_counts_once_and_an_unfinished_one_not_at_all() -> None:
    spell: dict[tuple[int, ...], str] = {
        (4,): "a dog runs fast",
        (5,): "a dog runs fast",
        (6,): "a cat",
        (7,): "cut off",
    }
    found = [Hypothesis(tokens, (-1.0,), -1.0, tokens != (7,)) for tokens in spell]
    judged = judge(found, "a dog runs fast", lambda tokens: spell[tuple(tokens)])
    assert [made.tokens for made, _ in judged] == [(4,), (6,)]
    assert judged[0][1] == pytest.approx(0.0)
    assert 0.3 < judged[1][1] <= 1.0


def test_texts_without_spaces_are_compared_by_characters() -> None:
    texts: dict[tuple[int, ...], str] = {(4,): "今天天气很好", (5,): "今天天气不好"}
    found = [Hypothesis(tokens, (-1.0,), -1.0, True) for tokens in texts]
    costs = [cost for _, cost in judge(found, "今天天气很好", lambda tokens: texts[tuple(tokens)])]
    assert costs[0] == pytest.approx(0.0)
    assert 0.1 < costs[1] < 0.9


# Training


BRIEF = {**SMALL, "data.source": "forth", "data.target": "back", "training.steps": 12, "training.evaluate_every": 6}
AGAIN = {"training.risk": 2.0, "training.steps": 6, "training.evaluate_every": 3, "training.warmup": 2}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """A corpus, and a model that has learnt a little from it."""
    folder = tmp_path_factory.mktemp("begun")
    files = write_reversals(folder, 300)
    list(train(files, folder / "model", overrides={**BRIEF, "training.steps": 60, "training.evaluate_every": 30}))
    return files, folder / "model"


def go_on(begun: tuple[list[Path], Path], output: Path, **more: object) -> list[Event]:
    return list(train(begun[0], output, start=begun[1], overrides={**AGAIN, **more}))


def test_a_model_goes_on_with_the_risk_of_its_own_translations(begun: tuple[list[Path], Path], tmp_path: Path) -> None:
    events = go_on(begun, tmp_path / "more")
    stages = [event for event in events if isinstance(event, Stage) and event.name == DOING]
    assert (stages[0].done, stages[-1].done) == (0, stages[-1].total)
    assert isinstance(events[-1], Finished)
    assert events[-1].complete
    found = Candidates(tmp_path / "more" / TRAINING / CANDIDATES, Specials())
    examples = Examples(tmp_path / "more" / TRAINING / "train")
    assert len(found) == len(examples) == stages[-1].total
    translator = load_as(Translator, begun[1], threads=1)
    source, target = (side.tolist() for side in examples.pair(7))
    spelt = {translator.target.decode(tokens): cost for tokens, cost in found.of(7)}
    several = translator.translate([translator.source.decode(source)], beam=SEVERAL, alternatives=SEVERAL - 1)[0]
    assert set(spelt) == {each.text for each in (several, *several.alternatives) if each.finished}
    right = translator.target.decode(target)
    assert all((cost < 1e-4) == (text == right) for text, cost in spelt.items())


def test_stopped_while_translating_it_goes_on_and_ends_alike(
    begun: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "SHARD", 50)
    monkeypatch.setattr(candidates, "PIECE", 10)
    go_on(begun, tmp_path / "whole")
    stop, seen = threading.Event(), []
    for event in train(begun[0], tmp_path / "cut", start=begun[1], overrides=AGAIN, stop=stop):
        if isinstance(event, Stage) and event.name == DOING and event.done >= 120:
            stop.set()
    kept = sorted((tmp_path / "cut" / NEW / CANDIDATES).glob("*.bin"))
    times = [path.stat().st_mtime_ns for path in kept]
    assert len(kept) == 2
    for event in resume(tmp_path / "cut"):
        seen += [event.done] if isinstance(event, Stage) and event.name == DOING else []
    assert min(seen) == 100
    again = [tmp_path / "cut" / TRAINING / CANDIDATES / path.name for path in kept]
    assert [path.stat().st_mtime_ns for path in again] == times
    assert (tmp_path / "cut" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()


def test_stopped_while_learning_it_goes_on_and_ends_alike(begun: tuple[list[Path], Path], tmp_path: Path) -> None:
    go_on(begun, tmp_path / "whole")
    stop = threading.Event()
    for event in train(begun[0], tmp_path / "cut", start=begun[1], overrides=AGAIN, stop=stop):
        if isinstance(event, Progress) and event.step == 4:
            stop.set()
    list(resume(tmp_path / "cut"))
    assert (tmp_path / "cut" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()


@pytest.mark.parametrize(("content", "first"), [(b"one", 100), (b"two", 0)])
def test_what_another_model_has_made_is_not_used(
    begun: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, first: int
) -> None:
    monkeypatch.setattr(candidates, "SHARD", 50)
    examples, translator = Examples(begun[1] / TRAINING / "train"), load_as(Translator, begun[1], threads=1)
    origin, seen = tmp_path / "weights", list[int]()
    origin.write_bytes(b"one")

    def tell(event: Event) -> None:
        assert isinstance(event, Stage)
        seen.append(event.done)
        if len(seen) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        find_candidates(tmp_path / "made", examples, translator, origin, tell)
    origin.write_bytes(content)
    find_candidates(tmp_path / "made", examples, translator, origin, tell)
    assert seen[3] == first


def test_without_a_model_to_start_from_there_is_no_risk(tmp_path: Path) -> None:
    files = write_reversals(tmp_path, 60)
    with pytest.raises(SettingsError, match=r"training\.risk .* give one with --from"):
        list(train(files, tmp_path / "model", overrides={**BRIEF, "training.risk": 1.0}))
    assert not (tmp_path / "model").exists()


def test_a_run_without_it_cannot_be_resumed_with_it(begun: tuple[list[Path], Path]) -> None:
    before = (begun[1] / SETTINGS).read_text()
    with pytest.raises(SettingsError, match=r"training\.risk"):
        list(resume(begun[1], overrides={"training.risk": 1.0, "training.steps": 80}))
    assert (begun[1] / SETTINGS).read_text() == before
