"""Very many lines in shards: one line for each, in order, whatever is killed."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from regard.errors import InputError, ModelError
from regard.jobs.bulk_translation import TranslateLines, name_line, translate_lines
from regard.jobs.resumable_shards import Executor, LinesDone, ShardInput, ShardOutput, Work
from regard.jobs.worker_processes import WorkerProcesses

MODEL = Path(__file__).parents[2] / "src" / "regard" / "demo" / "glass_model"
PACKED = shutil.ignore_patterns("native")  # which another test may write just now
LINES = ["a cat sees the red bird", "", "  the dog sleeps ", "x" * 5, "the man gives the woman a book", "ein Hund"] * 4
ENGINE = {"device": "cpu", "engine": "auto", "precision": "auto"}
OPTIONS = {"source": None, "target": None, "zero_shot": False, "beam": "1"}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> TranslateLines:
    model = Path(shutil.copytree(MODEL, tmp_path_factory.mktemp("model") / "glass", ignore=PACKED))
    return TranslateLines(path=str(model), engine=ENGINE, options=OPTIONS, source="in.txt")


@pytest.fixture(scope="module")
def wanted(work: TranslateLines) -> str:
    """Translates the lines in one process."""
    from regard import Translator
    from regard.decoding.model_loading import load_as

    translations = load_as(Translator, work.path, engine="auto", threads=1).translate(LINES, beam=1)
    return "".join(each.text.replace("\n", " ") + "\n" for each in translations)


class Backwards:
    """Makes the last shard first, in this process; is interrupted before the one with the number `fails`."""

    def __init__(self, fails: int | None = None) -> None:
        self.fails = fails
        self.made: list[int] = []

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, int | ShardOutput], None, None]:
        make = work.start()
        for shard in reversed(list(shards)):
            if shard.number == self.fails:
                raise KeyboardInterrupt
            self.made.append(shard.number)
            yield from ((shard.number, step) for step in make(shard))


def translate(
    output: Path, work: TranslateLines, executor: Executor | None = None, lines: list[str] = LINES
) -> LinesDone:
    return list(translate_lines(output, work, lines, 5, executor or Backwards()))[-1]


def test_every_line_gives_one_line_in_order(work: TranslateLines, wanted: str, tmp_path: Path) -> None:
    assert translate(tmp_path / "out.txt", work) == LinesDone(24, 0)
    assert (tmp_path / "out.txt").read_text() == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_what_is_translated_is_not_translated_again(work: TranslateLines, wanted: str, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate(output, work, Backwards(fails=1))
    assert not output.exists()
    assert len(list((tmp_path / "out.txt.shards").glob("*.txt"))) == 3
    again = Backwards()
    assert translate(output, work, again) == LinesDone(24, 14)
    assert again.made == [1, 0]
    assert output.read_text() == wanted


def test_damaged_shards_and_changed_lines_are_translated_again(
    work: TranslateLines, wanted: str, tmp_path: Path
) -> None:
    output, folder = tmp_path / "out.txt", tmp_path / "out.txt.shards"
    with pytest.raises(KeyboardInterrupt):
        translate(output, work, Backwards(fails=0))
    shard = folder / "00003.txt"
    shard.write_bytes(shard.read_bytes()[:-3])
    (folder / ".00002.txt.1.new").write_text("half of")
    again = Backwards()
    changed = [*LINES[:7], "a dog sleeps", *LINES[8:]]
    translate(output, work, again, changed)
    assert again.made == [3, 1, 0]
    assert output.read_text().splitlines()[8:] == wanted.splitlines()[8:]


def test_another_model_or_other_options_are_refused(work: TranslateLines, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate(output, work, Backwards(fails=0))
    other = replace(work, options={**OPTIONS, "beam": "2"})
    with pytest.raises(InputError, match=r"out.txt.shards: contains shards of another model, with other options"):
        translate(output, other)
    with pytest.raises(InputError, match="contains shards of another model"):
        list(translate_lines(output, work, LINES, 4, Backwards()))
    elsewhere = replace(work, path="/elsewhere", threads=2, source="copy.txt")
    assert elsewhere.key == work.key  # the same model with the same options
    turned = replace(work, engine=dict(reversed(ENGINE.items())), options=dict(reversed(OPTIONS.items())))
    assert turned.key == work.key  # in another order


def test_two_commands_do_not_share_an_output(work: TranslateLines, tmp_path: Path) -> None:
    first = translate_lines(tmp_path / "out.txt", work, LINES, 5, Backwards())
    next(first)
    with pytest.raises(InputError, match="another command is translating into it"):
        translate(tmp_path / "out.txt", work)
    assert list(first)[-1].done == 24


def test_processes_do_it_and_one_that_is_killed_is_replaced(work: TranslateLines, wanted: str, tmp_path: Path) -> None:
    workers = WorkerProcesses(2)
    killed = 0
    for progress in translate_lines(tmp_path / "out.txt", work, LINES, 5, workers):
        if progress.done < 15 and not killed:
            next(iter(workers.processes.values())).kill()
            killed += 1
    assert killed
    assert (tmp_path / "out.txt").read_text() == wanted


def test_a_line_that_cannot_be_translated_is_named_by_file_and_line(work: TranslateLines, tmp_path: Path) -> None:
    long = "x" * 10_000
    with pytest.raises(InputError, match=r"^in.txt:18: a text is too long"):
        translate(tmp_path / "out.txt", work, lines=[*LINES[:17], long])
    assert name_line("text 3: nonsense in text 3", "in.txt", 11) == "in.txt:13: nonsense in text 3"


def test_a_shard_with_too_few_lines_is_never_written(work: TranslateLines, tmp_path: Path) -> None:
    class Loses(Backwards):
        def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, int | ShardOutput], None, None]:
            for number, step in super().run(work, shards):
                cut = step if isinstance(step, int) else step._replace(data=step.data[step.data.index(b"\n") + 1 :])
                yield number, cut

    with pytest.raises(ModelError, match="shard 4 has 3 lines instead of 4"):
        translate(tmp_path / "out.txt", work, Loses())
    assert not (tmp_path / "out.txt").exists()


def test_forms_are_those_of_the_command(work: TranslateLines) -> None:
    def rows(form: str, **more: object) -> Iterator[str]:
        make = replace(work, options={**OPTIONS, **more}, form=form).start()  # type: ignore[arg-type]
        *_, output = make(ShardInput(0, 1, b"a cat sees the red bird\n\n"))
        assert isinstance(output, ShardOutput)
        return iter(output.data.decode().splitlines())

    assert len(list(rows("text"))) == 2
    assert next(rows("scores")).count("\t") == 1
    assert next(rows("json", alternatives="2")).startswith('{"text": ')


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a Regard model"):
        TranslateLines(path=str(tmp_path), engine=ENGINE, options=OPTIONS)
