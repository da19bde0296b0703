"""No setting is ignored: another value changes the result, or the setting names its own test here."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.cli.train import train_in_processes
from regard.model.transformer import Stack
from regard.preparation.train_and_resume import resume, train
from regard.settings import Settings
from regard.settings.option_fields import options
from regard.tokens.language_directions import Direction
from regard.training.distributed import ProcessGroup
from regard.training.events import Evaluation, Finished, Prepared, Progress
from regard.training.run import TrainingRun, open_run
from regard.training.tasks.translation import TranslationTraining
from regard.training.validation import dev_scores
from regard.weights import Contents
from tests.training.corpora import SMALL, write_reversals
from tests.training.toys import TINY, write_labels, write_text, write_words

Changes = dict[str, Any]
ROOT = Path(__file__).parents[2]

BRIEF: Changes = {
    **SMALL,
    "data.source": "en",
    "data.target": "de",
    "model.width": 16,
    "model.hidden": 16,
    "training.batch_tokens": 128,
    "training.steps": 4,
    "training.evaluate_every": 2,
    "training.warmup": 0,
    "training.learning_rate": 0.02,
    "decoding.beam": 1,
}
OTHERS: dict[str, tuple[Any, Changes]] = {
    "data.dev_pairs": (3, {}),
    "data.max_characters": (5, {}),
    "data.memory": ("on", {}),
    "data.protect": ("on", {}),
    "tokenizer.joint": (False, {"model.tie": "none"}),
    "tokenizer.kind": ("unigram", {}),
    "tokenizer.sample": (5, {"tokenizer.vocabulary": 320}),
    "model.activation": ("gelu", {}),
    "model.activation_dropout": (0.3, {}),
    "model.attends": (False, {"model.kind": "lstm"}),
    "model.attention_dropout": (0.3, {}),
    "model.bias": (False, {}),
    "model.decoder_layers": (2, {}),
    "model.dropout": (0.4, {}),
    "model.embedding_dropout": (0.4, {}),
    "model.embedding_norm": (False, {}),
    "model.encoder_layers": (2, {}),
    "model.heads": (4, {}),
    "model.hidden": (24, {}),
    "model.key_value_heads": (1, {}),
    "model.key_width": (4, {}),
    "model.kind": ("gru", {}),
    "model.max_length": (6, {}),
    "model.norm": ("post", {}),
    "model.norm_epsilon": (0.5, {}),
    "model.norm_kind": ("layer", {}),
    "model.output_bias": (True, {}),
    "model.positions": ("sinusoidal-halves", {}),
    "model.rotary_base": (3.0, {"model.positions": "rotary"}),
    "model.scale_embedding": (False, {}),
    "model.tie": ("none", {}),
    "model.value_width": (4, {}),
    "model.width": (24, {}),
    "training.accumulate": (2, {}),
    "training.average": (1, {"training.evaluate_every": 1}),
    "training.batch_tokens": (64, {}),
    "training.betas": ((0.5, 0.6), {}),
    "training.clip": (0.01, {"training.epsilon": 1.0}),  # which makes Adam mind how large a gradient is
    "training.dropout_warmup": (2.0, {"model.dropout": 0.5}),
    "training.ema": (0.0, {}),
    "training.epsilon": (0.1, {}),
    "training.evaluate_every": (1, {}),
    "training.history": (2, {}),
    "training.label_smoothing": (0.0, {}),
    "training.learning_rate": (0.03, {}),
    "training.metric": ("loss", {}),
    "training.optimizer": ("muon", {}),
    "training.patience": (1, {"training.learning_rate": 0.0, "training.evaluate_every": 1}),
    "training.precision": ("bfloat16", {}),
    "training.schedule": ("linear", {}),
    "training.seed": (2, {}),
    "training.steps": (3, {}),
    "training.subword_sampling": (0.5, {}),
    "training.table_rate": (1.0, {"training.optimizer": "muon"}),
    "training.warmup": (3, {}),
    "training.weight_decay": (0.5, {}),
}
"""Another value than the one in `BRIEF` or the default, and what else has to be so that it matters to a translator."""

TASKS: dict[str, tuple[Any, Changes]] = {
    "data.carrier": ("word", {"task": "classify"}),
    "data.documents": ("line", {"task": "write"}),
    "model.next_sentence": (True, {"task": "fill"}),
    "model.pooler": ("relu", {"task": "fill", "model.next_sentence": True}),
    "model.segments": (3, {"task": "fill"}),
    "training.masked": (0.5, {"task": "fill"}),
    "training.whole_words": (True, {"task": "fill", "tokenizer.vocabulary": 300}),
}
ELSEWHERE = {
    "preset": "training/test_train_and_resume.py::test_a_run_has_the_preset_for_its_size",
    "task": "training/test_tasks.py::test_a_model_that_fills_learns_to_label",
    "data.directions": "tokens/test_directions.py::test_three_files_give_every_direction_that_is_wanted",
    "data.labels": "training/test_tasks.py::test_labels_keep_their_order_where_the_model_knows_them",
    "data.source": "cli/test_train.py::test_languages_and_folder_come_from_the_names_of_the_files",
    "data.target": "cli/test_train.py::test_languages_and_folder_come_from_the_names_of_the_files",
    "data.undecodable": "files/test_formats.py"
    "::test_lines_that_are_not_utf8_can_be_dropped_without_shifting_the_others",
    "tokenizer.tags": "tokens/test_directions.py::test_three_files_give_every_direction_that_is_wanted",
    "tokenizer.vocabulary": "training/test_every_setting.py::test_a_vocabulary_has_the_requested_size",
    "training.adapters": "training/test_low_rank_adapters.py::test_adapters_need_a_model_to_start_from",
    "training.device": "decoding/test_translator.py::test_a_device_that_is_not_there_is_refused",
    "training.evaluate_pairs": "training/test_every_setting.py::test_the_requested_number_of_pairs_is_translated",
    "training.parallel": "training/test_distributed.py::test_a_state_of_two_processes_continues_with_any_number",
    "training.recompute": "training/test_every_setting.py::test_recompute_reaches_every_stack",
    "training.restarts": "training/test_every_setting.py::test_lost_processes_are_restarted_as_often_as_requested",
    "training.threads": "training/test_every_setting.py::test_the_requested_number_of_threads_is_used",
    "training.timeout": "training/test_every_setting.py::test_the_timeout_of_another_process_is_the_requested_one",
}  # fmt: skip
"""Settings that need more than a short run of one process, and a test that fails without them."""


@functools.cache
def trained(folder: Path, changes: tuple[tuple[str, Any], ...]) -> list[Any]:
    """Returns the result of a run: the files of its folder and its events, without times."""
    given = dict(changes)
    task = given.get("task", "translate")
    place = folder / str(abs(hash(changes)))
    place.mkdir()
    files = {
        "translate": lambda: write_reversals(place, 60, longest=4),
        "classify": lambda: [write_words(place) if given.get("data.carrier") == "word" else write_labels(place)],
    }.get(task, lambda: [write_text(place)])()
    base = BRIEF if task == "translate" else {**TINY, "training.steps": 4, "training.evaluate_every": 2}
    events = list(train(files, place / "run", overrides={**base, **given}))
    run = place / "run"
    names = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    content = [(run / name).read_bytes() for name in ("weights.safetensors", "tokenizer.json")]
    return [names, *content, *(line for event in events for line in values_of(event))]


def values_of(event: object) -> list[Any]:
    match event:
        case Progress():
            return [(event.step, event.epoch, event.loss, event.learning_rate, event.gradient)]
        case Evaluation():
            return [(event.step, event.loss, event.scores)]
        case Prepared():
            return [(event.examples, event.held_out)]
        case Finished():
            return [event.reason, re.sub(r"version:\S+", "", str(event.scores))]
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("setting", [*OTHERS, *TASKS])
def test_another_value_trains_something_else(setting: str, folder: Path) -> None:
    value, beside = (OTHERS | TASKS)[setting]
    first = trained(folder, tuple(beside.items()))
    assert first != trained(folder, (*beside.items(), (setting, value)))


@pytest.mark.parametrize("task", ["translate", "fill"])
def test_the_same_values_train_the_same(task: str, folder: Path) -> None:
    changes = () if task == "translate" else (("task", task),)
    assert trained(folder, changes) == trained(folder, (*changes, ("training.restarts", 7)))


def test_every_setting_is_tried_or_names_its_test() -> None:
    every = {
        option.path for option in options(Settings) if option.path.partition(".")[0] not in ("decoding", "embedding")
    }
    assert {*OTHERS, *TASKS, *ELSEWHERE} == every
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), place


def begun(folder: Path, **training: Any) -> TrainingRun:
    """Prepares a run without training it."""
    given = BRIEF | {f"training.{name}": value for name, value in training.items()}
    list(train(write_reversals(folder, 60, longest=4), folder / "run", overrides=given, prepare_only=True))
    return open_run(folder / "run")


def test_a_vocabulary_has_the_requested_size(tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    text.write_text("".join(f"{chr(97 + i % 26) * 3}{chr(97 + i % 7)} word{i}\n" for i in range(300)))
    for size in (300, 320):
        given = {**TINY, "task": "write", "tokenizer.vocabulary": size}
        list(train([text], tmp_path / str(size), overrides=given, prepare_only=True))
        assert open_run(tmp_path / str(size)).vocabularies.target.size == size


def test_recompute_reaches_every_stack(tmp_path: Path) -> None:
    model = begun(tmp_path, recompute=True).model
    assert [each.recomputes for each in model.modules() if isinstance(each, Stack)] == [True, True]


def test_the_requested_number_of_threads_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    begun(tmp_path, threads=3)
    assert asked[-1] == 3


def test_the_requested_number_of_pairs_is_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, made = begun(tmp_path, evaluate_pairs=2), []
    assert isinstance(run.task, TranslationTraining)
    translate = run.task.translate

    def counted(contents: Contents, direction: Direction, pairs: list[Any], **options: Any) -> Any:
        made.append(len(pairs))
        return translate(contents, direction, pairs, **options)

    monkeypatch.setattr(run.task, "translate", counted)
    dev_scores(run, run.model, 0)
    assert made == [2]


def test_the_timeout_of_another_process_is_the_requested_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def join_group(seconds: int) -> ProcessGroup:
        asked.append(seconds)
        return ProcessGroup()

    monkeypatch.setattr("regard.preparation.run_in_folder.join_group", join_group)
    begun(tmp_path, timeout=7)
    list(resume(tmp_path / "run", overrides={"training.steps": 1}))
    assert asked == [7, 7]


def test_lost_processes_are_restarted_as_often_as_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a signal from outside, the remaining number of restarts is passed on."""
    asked: list[int] = []

    def launch(_work: object, _arguments: object, processes: int, restarts: int) -> dict[int, tuple[int, str]]:
        asked.append(restarts)
        return dict.fromkeys(range(processes), (130, ""))

    monkeypatch.setattr("regard.training.distributed.launch", launch)
    begun(tmp_path, restarts=2)
    assert train_in_processes(tmp_path / "run", 2) == 130
    assert asked == [2, 1, 0]
