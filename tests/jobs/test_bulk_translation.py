"""Very many lines in shards: one line for each, in order, whatever is killed."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from regard.errors import DataError, InputError, ModelError
from regard.jobs.bulk_translation import Bulk, Order, Progress, Translating, model_digest, renumbered
from regard.jobs.worker_processes import Message, Workers

MODEL = Path(__file__).parents[2] / "src" / "regard" / "demo" / "glass_model"
PACKED = shutil.ignore_patterns("native")  # which another test may write just now
LINES = ["a cat sees the red bird", "", "  the dog sleeps ", "x" * 5, "the man gives the woman a book", "ein Hund"] * 4
ENGINE = {"device": "cpu", "engine": "auto", "precision": "auto", "threads": 1}
OPTIONS = {"source": None, "target": None, "zero_shot": False, "beam": "1"}


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> Order:
    model = Path(shutil.copytree(MODEL, tmp_path_factory.mktemp("model") / "glass", ignore=PACKED))
    return Order(str(model), model_digest(model), ENGINE, OPTIONS)


@pytest.fixture(scope="module")
def wanted(order: Order) -> str:
    """What one process makes of the lines."""
    from regard import Translator
    from regard.decoding.model_loading import load_as

    found = load_as(Translator, order.model, engine="auto", threads=1).translate(LINES, beam=1)
    return "".join(each.text.replace("\n", " ") + "\n" for each in found)


class Here:
    """Does jobs in this process, and counts them; stops before the one with the number `fails`."""

    def __init__(self, order: Order, fails: int | None = None) -> None:
        self.work, self.fails = Translating(order), fails
        self.done: list[int] = []

    def run(self, jobs: Iterable[Message]) -> Generator[Message, None, None]:
        held = list(jobs)
        for job in reversed(held):  # ready in another order than they came
            if job.about["shard"] == self.fails:
                raise KeyboardInterrupt
            self.done.append(job.about["shard"])
            yield self.work(job)


def translate(output: Path, order: Order, executor: Here | Workers | None = None, lines: list[str] = LINES) -> Progress:
    return list(Bulk(output, order, 5).run(lines, executor or Here(order)))[-1]


def test_every_line_gives_one_line_in_order(order: Order, wanted: str, tmp_path: Path) -> None:
    assert translate(tmp_path / "out.txt", order) == Progress(24, 0)
    assert (tmp_path / "out.txt").read_text() == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_what_is_translated_is_not_translated_again(order: Order, wanted: str, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate(output, order, Here(order, fails=1))
    assert not output.exists()
    assert len(list((tmp_path / "out.txt.shards").glob("*.txt"))) == 3
    again = Here(order)
    assert translate(output, order, again) == Progress(24, 14)
    assert again.done == [1, 0]
    assert output.read_text() == wanted


def test_a_damaged_shard_and_changed_lines_are_translated_anew(order: Order, wanted: str, tmp_path: Path) -> None:
    output, folder = tmp_path / "out.txt", tmp_path / "out.txt.shards"
    with pytest.raises(KeyboardInterrupt):
        translate(output, order, Here(order, fails=0))
    shard = next(folder.glob("00003-*"))
    shard.write_bytes(shard.read_bytes()[:-3])
    (folder / ".00002.txt.1.new").write_text("half of")
    again = Here(order)
    changed = [*LINES[:7], "a dog sleeps", *LINES[8:]]
    translate(output, order, again, changed)
    assert again.done == [3, 1, 0]
    assert output.read_text().splitlines()[8:] == wanted.splitlines()[8:]


def test_another_model_or_other_options_are_refused(order: Order, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate(output, order, Here(order, fails=0))
    other = Order(order.model, order.digest, ENGINE, {**OPTIONS, "beam": "2"})
    with pytest.raises(InputError, match=r"out.txt.shards: has shards of another model, of other options"):
        translate(output, other)
    with pytest.raises(InputError, match="has shards of another model"):
        list(Bulk(output, order, 4).run(LINES, Here(order)))
    elsewhere = Order("/elsewhere", order.digest, {**ENGINE, "threads": 2}, OPTIONS)
    assert elsewhere.key == order.key  # the same model by the same options
    turned = Order(order.model, order.digest, dict(reversed(ENGINE.items())), dict(reversed(OPTIONS.items())))
    assert turned.key == order.key  # in whatever order they are given


def test_two_commands_do_not_share_an_output(order: Order, tmp_path: Path) -> None:
    first = Bulk(tmp_path / "out.txt", order, 5).run(LINES, Here(order))
    next(first)
    with pytest.raises(InputError, match="another command is translating into it"):
        translate(tmp_path / "out.txt", order)
    assert list(first)[-1].done == 24


def test_processes_do_it_and_one_that_is_killed_is_replaced(order: Order, wanted: str, tmp_path: Path) -> None:
    workers = Workers("regard.jobs.bulk_translation", vars(order), 2)
    killed = 0
    for progress in Bulk(tmp_path / "out.txt", order, 5).run(LINES, workers):
        if progress.done < 15 and not killed:
            next(iter(workers.processes.values())).kill()
            killed += 1
    assert killed
    assert (tmp_path / "out.txt").read_text() == wanted


def test_a_line_that_cannot_be_translated_is_named_by_its_place_in_the_file(order: Order, tmp_path: Path) -> None:
    long = "x" * 10_000
    with pytest.raises(InputError, match=r"^line 18: a text is too long"):
        translate(tmp_path / "out.txt", order, lines=[*LINES[:17], long])
    assert renumbered("text 3: nonsense in text 3", 11) == "line 13: nonsense in text 3"


def test_a_shard_with_too_few_lines_is_never_written(order: Order, tmp_path: Path) -> None:
    class Loses(Here):
        def run(self, jobs: Iterable[Message]) -> Generator[Message, None, None]:
            for answer in super().run(jobs):
                yield Message(answer.about, answer.data[answer.data.index(b"\n") + 1 :])

    with pytest.raises(ModelError, match="shard 4 has 3 lines of 4"):
        translate(tmp_path / "out.txt", order, Loses(order))
    assert not (tmp_path / "out.txt").exists()


def test_forms_are_those_of_the_command(order: Order) -> None:
    def rows(form: str, **more: object) -> Iterator[str]:
        made = Translating(Order(order.model, order.digest, ENGINE, {**OPTIONS, **more}, form=form))  # type: ignore[arg-type]
        answer = made(Message({"shard": 0, "first": 1}, b"a cat sees the red bird\n\n"))
        return iter(answer.data.decode().splitlines())

    assert len(list(rows("text"))) == 2
    assert next(rows("scores")).count("\t") == 1
    assert next(rows("json", alternatives="2")).startswith('{"text": ')


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a Regard model"):
        model_digest(tmp_path)
    with pytest.raises(DataError, match="ended 3 times"):
        list(Workers("regard.no_such_module", {}, 1).run([Message({"shard": 0})]))
