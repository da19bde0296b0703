"""The map of effects is what one patched run after the other would give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.explorer import ablation
from regard.explorer.ablation import ClientGoneError, ablate
from tests.explorer.toys import GREEDY, SHAPES, TEXT, explorer, look_at

TEXTS = {"fill": "A [MASK] sees the [MASK].", "classify": TEXT, "translate": TEXT, "write": TEXT}
CASES = [
    ("translate", "pre"),
    ("translate", "groups"),
    ("write", "post"),
    ("fill", "pre rms"),
    ("classify", "post rms"),
]


@pytest.mark.parametrize("op", ["zero", "mean"])
@pytest.mark.parametrize(("task", "shape"), CASES)
def test_the_map_of_heads_equals_single_patches(task: str, shape: str, op: str) -> None:
    made = explorer(task, **SHAPES[shape])
    usual: dict[str, Any] = {"text": TEXTS[task]}
    if task in ("translate", "write"):
        usual["decode"] = GREEDY
    run = made.run(usual)
    found = ablate(run.passed, "heads", op)
    if task in ("translate", "write"):  # the same output again, whatever the patched model would write
        written = [i for i, step in zip(run.passed.chosen, run.answer["steps"], strict=True) if not step["given"]]
        forced = written if written[-1] != 2 else written[:-1]
        usual["prefix"] = forced
    assert found["kinds"] == list(found["heads"]) == list(found["top"])
    for kind, layers in found["heads"].items():
        stack, _, name = kind.partition(".")
        for layer, heads in enumerate(layers):
            for head in range(0, len(heads), 3):
                site = f"{stack}.layers.{layer}.{name}"
                patched = made.run({**usual, "patch": [{"site": site, "head": head, "op": op}]})
                check(run, patched, heads[head], found["top"][kind][layer][head])


def check(run: Any, patched: Any, delta: list[float], top: list[str | None]) -> None:
    count = len(run.passed.chosen)
    before, after = (each.passed.scores(each.passed.answers[None])[0][:count] for each in (run, patched))
    chosen = torch.tensor(run.passed.chosen)[:, None]
    rows = min(len(before), len(after))  # an end that was found may not be among those forced
    expected = (after[:rows].gather(1, chosen[:rows]) - before[:rows].gather(1, chosen[:rows])).squeeze(1)
    assert delta[:rows] == pytest.approx(expected.tolist(), abs=1e-4)
    for row in range(rows):
        first, now = int(before[row].argmax()), int(after[row].argmax())
        assert top[row] == (None if first == now else ablation.display_answer(run.passed, now))


@pytest.mark.parametrize("what", ["heads", "sublayers"])
@pytest.mark.parametrize("op", ["zero", "mean"])
def test_one_batch_equals_one_by_one(monkeypatch: pytest.MonkeyPatch, what: str, op: str) -> None:
    run = look_at("translate")
    together = ablate(run.passed, what, op)
    monkeypatch.setattr(ablation, "MAX_LOGITS", 1)
    alone = ablate(run.passed, what, op)
    assert flat(together) == pytest.approx(flat(alone), abs=1e-5)


def flat(found: Any) -> list[float]:
    if isinstance(found, float):
        return [found]
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list) else []
    return [number for value in values for number in flat(value)]


def test_a_sublayer_without_effect_is_one_that_was_dropped() -> None:
    made = explorer("write")
    usual = {"text": TEXT, "target": " a cat"}
    run = made.run(usual)
    found = ablate(run.passed, "sublayers", "zero")["sublayers"]["decoder"]
    assert [each["site"] for each in found] == list(run.anatomy.stacks["decoder"].sublayers())
    for each in found:
        patched = made.run({**usual, "patch": [{"site": each["site"], "op": "drop"}]})
        check(run, patched, each["delta"], each["top"])
        again = ablate(patched.passed, "sublayers", "zero", ["decoder"])["sublayers"]["decoder"]
        assert next(e["delta"] for e in again if e["site"] == each["site"]) == pytest.approx(
            [0.0] * len(run.passed.chosen), abs=1e-5
        )


def test_classes_and_gaps_are_the_steps() -> None:
    run = look_at("classify")
    found = ablate(run.passed, "heads", "zero")
    assert [len(head) for layer in found["heads"]["encoder.self_attention"] for head in layer] == [1] * 8
    run = look_at("fill", TEXTS["fill"])
    found = ablate(run.passed, "heads", "zero")
    assert [len(head) for layer in found["heads"]["encoder.self_attention"] for head in layer] == [2] * 8


def test_some_kinds_can_be_chosen() -> None:
    run = look_at("translate")
    assert ablate(run.passed, "heads", "zero", ["decoder.cross_attention"])["kinds"] == ["decoder.cross_attention"]


@pytest.mark.parametrize(
    ("task", "arguments", "told"),
    [
        ("embed", ("heads", "zero"), "predicts neither"),
        ("write", ("head", "zero"), "what: must be"),
        ("write", ("heads", "uniform"), "op: must be"),
        ("write", ("heads", "zero", ["encoder.self_attention"]), "targets: must be"),
        ("write", ("heads", "zero", []), "targets: must be"),
    ],
)
def test_wrong_ablations_are_refused(task: str, arguments: tuple[Any, ...], told: str) -> None:
    with pytest.raises(InputError, match=told):
        ablate(look_at(task).passed, *arguments)


def test_an_ablation_stops_when_the_client_has_left() -> None:
    run = explorer("translate").run({"text": TEXT, "decode": GREEDY})
    asked: list[int] = []

    def gone() -> bool:
        asked.append(1)
        return True

    with pytest.raises(ClientGoneError):
        ablate(run.passed, "heads", "zero", None, gone)
    assert len(asked) == 1
