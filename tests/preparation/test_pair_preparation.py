"""Several directions in one run: what is held out and reported, and what a model that starts from another inherits."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import DataError, InputError, SettingsError
from regard.model_folder import read_settings
from regard.preparation.pair_preparation import PairPreparation
from regard.preparation.task_preparation import TrainingRequest
from regard.preparation.train_and_resume import train
from regard.tokens.text_pairs import Pair
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import Examples
from regard.training.events import Evaluation, Event, Finished, Note
from tests.training.corpora import SMALL

EN = "one two three four five".split()  # noqa: SIM905
DE = "eins zwei drei vier fünf".split()  # noqa: SIM905
FR = "un deux trois quatre cinq".split()  # noqa: SIM905
WORDS = {"en": EN, "de": DE, "fr": FR}
FOUR = ["en-de", "en-fr", "de-en", "fr-en"]


def write(folder: Path, name: str, languages: str, lines: int = 120, seed: int = 0, longest: int = 4) -> list[Path]:
    """Writes line-aligned files of numbers in words; short ones are frequent, and some have two translations."""
    dice = random.Random(seed)
    rows = [[dice.randrange(5) for _ in range(dice.randint(1, longest))] for _ in range(lines)]
    files = []
    for language in languages.split():
        texts = [" ".join(WORDS[language][n] for n in row) for row in rows]
        texts = [f"{text} {dice.choice('!?')}" if dice.random() < 0.2 else text for text in texts]
        files.append(folder / f"{name}.{language}")
        files[-1].write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return files


def prepare(folder: Path, files: list[Path], notes: list[str], **given: Any) -> PairPreparation:
    """Runs a preparation."""
    settings: dict[str, Any] = {}
    for name, value in SMALL.items():
        table, _, key = name.partition(".")
        settings.setdefault(table, {})[key] = value
    settings["data"] = {"directions": FOUR, **given}
    request = TrainingRequest(list(map(str, files)), settings, "cpu")

    def tell(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)

    made = PairPreparation(folder, request, tell)
    made.run()
    return made


def held_out(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    "directions", [FOUR, ["en-de", "de-en"], ["en-de", "en-fr"], ["en-de", "de-fr", "fr-en"]], ids=" ".join
)
@pytest.mark.parametrize("sets", [["en de fr"], ["en de", "fr en", "de fr"]], ids=["one set", "three sets"])
def test_no_sentence_of_the_dev_set_is_trained_on(sets: list[str], directions: list[str], tmp_path: Path) -> None:
    wanted = {frozenset(each.split("-")) for each in directions}
    files: list[Path] = []
    for number, languages in enumerate(sets):
        needed = [n for n in languages.split() if any(n in pair and pair <= set(languages.split()) for pair in wanted)]
        if needed:
            files += write(tmp_path, f"set{number}", " ".join(needed), 300, number, longest=5)
    notes: list[str] = []
    made = prepare(tmp_path / "new", files, notes, directions=directions, dev_pairs=12)
    dev, trained = held_out(tmp_path / "new"), list(made.training_pairs("again"))
    assert {pair["direction"] for pair in dev} == {pair.direction for pair in trained} == set(directions)
    secret = {pair["source"] for pair in dev}
    assert not secret & {side for pair in trained for side in (pair.source, pair.target)}
    assert len(trained) > len(dev)
    read = sum(int(note.split()[3].replace(",", "")) for note in notes if " has " in note)
    lost = sum(int(note.split()[1].replace(",", "")) for note in notes if "pairs left out because one side" in note)
    assert read == len(dev) + len(trained) + lost


def test_the_tag_comes_before_the_source(tmp_path: Path) -> None:
    notes: list[str] = []
    files = write(tmp_path, "train", "en de fr")
    made = prepare(tmp_path / "new", files, notes)
    assert notes[:5] == ["train: 480 pairs read, 480 kept", *(f"train: {each} has 120 pairs" for each in FOUR)]
    vocabularies = Vocabularies.load(tmp_path / "new" / "tokenizer.json")
    assert list(vocabularies.source.tags) == ["de", "fr", "en"]
    assert read_settings(tmp_path / "new").tokenizer.tags == ("de", "fr", "en")
    assert (made.settings.data.source, made.settings.data.target) == ("en", "de")
    examples = Examples(tmp_path / "new" / "train")
    pairs: list[Pair] = list(made.training_pairs("again"))
    assert len(examples) == len(pairs)
    for row, pair in enumerate(pairs):
        source, target = (list(map(int, ids)) for ids in examples.pair(row))
        assert source[0] == vocabularies.source.tags[pair.direction.partition("-")[2]]
        assert vocabularies.source.decode(source) == vocabularies.source.decode(source[1:]) == pair.source
        assert vocabularies.target.decode(target) == pair.target


def test_other_tags_follow_those_of_languages(tmp_path: Path) -> None:
    files = write(tmp_path, "train", "en de")
    request = TrainingRequest(
        list(map(str, files)), {"data": {"directions": "en-de,de-en"}, "tokenizer": {"tags": ["odd", "de"]}}, "cpu"
    )
    assert PairPreparation(tmp_path, request, lambda _: None).settings.tokenizer.tags == ("de", "en", "odd")


def test_directions_without_pairs_are_named(tmp_path: Path) -> None:
    files = write(tmp_path, "train", "en de")
    with pytest.raises(DataError, match="no pairs for the direction en-fr"):
        prepare(tmp_path / "new", files, [])
    objects = tmp_path / "train.jsonl"
    objects.write_text('{"en": "one", "de": "eins"}\n{"en": "two", "de": "zwei"}\n')
    with pytest.raises(DataError, match=r"no pairs for the direction en-fr in .*train\.jsonl"):
        prepare(tmp_path / "new", [objects], [])
    with pytest.raises(SettingsError, match="name one direction"):
        prepare(tmp_path / "new", files, [], directions=["en-de"], source="en")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    folder = tmp_path_factory.mktemp("directions")
    dev = write(folder, "dev", "en de fr", 8, 5)
    known = [(folder / f"dev.{each}").read_text().splitlines()[0] for each in ("en", "de", "fr")]
    train_files = write(folder, "train", "en de", 60, 1) + write(folder, "other", "en fr", 60, 2)
    for path, text in zip(train_files[:2], known, strict=False):
        path.write_text(path.read_text() + text + "\n")
    overrides = {**SMALL, "data.directions": FOUR, "training.steps": 6, "training.evaluate_every": 3}
    return folder / "run", list(train(train_files, folder / "run", dev=dev, overrides=overrides))


def test_a_run_scores_each_direction_and_their_mean(trained: tuple[Path, list[Event]]) -> None:
    folder, events = trained
    evaluations = [event for event in events if isinstance(event, Evaluation)]
    assert len(evaluations) == 2
    for event in evaluations:
        names = [f"{metric} {each}" for each in FOUR for metric in ("bleu", "chrf")]
        assert list(event.scores) == ["bleu", "chrf", *names]
        for metric in ("bleu", "chrf"):
            mean = sum(event.scores[f"{metric} {each}"] for each in FOUR) / 4
            assert event.scores[metric] == pytest.approx(mean)
    assert [event.sample[0] for event in evaluations] == [("direction", "en-de"), ("direction", "en-fr")]
    assert any("dev sources are also in train" in event.text for event in events if isinstance(event, Note))
    finished = events[-1]
    assert isinstance(finished, Finished)
    card = (folder / "card.md").read_text(encoding="utf-8")
    for each in FOUR:
        assert [line.split()[1] for line in finished.scores["dev"] if line.startswith(each)] == ["BLEU", "chrF", "TER"]
        assert f"\n- {each}: 6" in card
        assert f"\n{each} BLEU " in card
    assert finished.scores["dev"][-1].startswith("mean of 4 directions: BLEU ")
    assert card.startswith("# run: en → de, en → fr, de → en, fr → en\n")
    assert "regard translate run input.txt --to de\n" in card


def test_the_target_language_must_be_named_unless_it_is_clear(trained: tuple[Path, list[Event]]) -> None:
    translator = regard.load_as(regard.Translator, trained[0])
    assert isinstance(translator("one two", target="de"), str)
    assert isinstance(translator("eins", source="de"), str)
    with pytest.raises(InputError, match="de or fr"):
        translator("one", source="en")


def test_a_model_that_starts_from_it_keeps_its_directions(trained: tuple[Path, list[Event]], tmp_path: Path) -> None:
    brief = {"training.steps": 1, "training.threads": 1, "training.evaluate_pairs": 4}
    files = write(tmp_path, "more", "en de fr", 40, 7)
    list(train(files, tmp_path / "next", overrides=brief, start=trained[0]))
    settings = read_settings(tmp_path / "next")
    assert (settings.data.directions, settings.tokenizer.tags) == (tuple(FOUR), ("de", "fr", "en"))
    with pytest.raises(DataError, match="no pairs for the direction en-fr"):
        list(train(files[:2], tmp_path / "fewer", overrides=brief, start=trained[0]))
    with pytest.raises(SettingsError, match=r"to translate into es, because its vocabulary only has de, fr, en tags"):
        list(train(files, tmp_path / "none", overrides={**brief, "data.directions": "en-es"}, start=trained[0]))


def test_synthetic_pairs_are_for_one_direction(tmp_path: Path) -> None:
    text = tmp_path / "mono.de"
    text.write_text("ein Hund\n")
    with pytest.raises(SettingsError, match="--back-translate supports only one direction"):
        next(train([text, text], tmp_path / "run", back_translate=[text], overrides={"data.directions": "en-de,de-en"}))
    assert not (tmp_path / "run").exists()


def test_a_teacher_of_several_directions_is_refused(trained: tuple[Path, list[Event]], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="translates in several directions"):
        next(regard.distill(trained[0], [tmp_path / "text.txt"], tmp_path / "student"))
    assert not (tmp_path / "student").exists()


def test_links_go_by_their_own_names(tmp_path: Path) -> None:
    """A data store names files by their content, and links to them."""
    links = []
    for number, path in enumerate(write(tmp_path, "corpus", "en de fr")):
        path = path.rename(tmp_path / f"SHA256-{number:064x}")
        links.append(tmp_path / f"train.{('en', 'de', 'fr')[number]}")
        links[-1].symlink_to(path)
    list(train(links, tmp_path / "run", overrides={**SMALL, "data.directions": FOUR}, prepare_only=True))
    assert list(read_settings(tmp_path / "run").data.directions) == FOUR
