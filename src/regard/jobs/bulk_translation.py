"""Translates large numbers of lines in shards; each line produces one output line, in the same order.

OUTPUT.shards/   beside the output until it is complete
  about.json     digest of the model and the options, which must not change between runs
  00000.txt ...  finished shards (see resumable_shards.py)
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.atomic_files import write_text
from regard.decoding.translator import WINDOW
from regard.errors import InputError
from regard.jobs.output_lines import format_translation
from regard.jobs.resumable_shards import (
    Executor,
    LinesDone,
    MakeShard,
    ResumableRun,
    ShardInput,
    ShardOutput,
    Work,
)
from regard.model_folder import CONFIDENCE, SETTINGS, TOKENIZER, WEIGHTS, check_folder

LINES_PER_SHARD = 5 * WINDOW


@dataclass(frozen=True, kw_only=True)
class TranslateLines(Work):
    """Translates each line into one line of output."""

    engine: dict[str, Any]  # arguments of `load_as` except threads
    options: dict[str, Any]  # arguments of `translate`
    protect: bool = False
    form: Literal["text", "scores", "json"] = "text"
    threads: int = 1  # number of threads per engine
    source: str = "standard input"  # name of the input in errors
    without_effect: ClassVar[frozenset[str]] = frozenset({"path", "threads", "source"})
    line_for_line: ClassVar[bool] = True

    def files(self) -> dict[str, Path]:
        return model_files(Path(self.path))

    def start(self) -> MakeShard:
        from regard.decoding.model_loading import load_as
        from regard.decoding.translator import Translator
        from regard.faithful.faithful_translation import Faithful

        translator = load_as(Translator, self.path, threads=self.threads, **self.engine)
        translate = Faithful(translator).translate_stream if self.protect else translator.translate_stream

        def make(shard: ShardInput) -> Iterator[int | ShardOutput]:
            rows, form = list[str](), {"scores": self.form == "scores", "as_json": self.form == "json"}
            try:
                for number, translation in enumerate(translate(shard.lines(), **self.options), 1):
                    rows += format_translation(translation, **form)
                    yield number
            except InputError as error:
                raise InputError(name_line(str(error), self.source, shard.first)) from None
            yield ShardOutput("".join(f"{row}\n" for row in rows).encode(), {})

        return make


def translate_lines(
    output: Path,
    work: TranslateLines,
    lines: Iterable[str],
    size: int = LINES_PER_SHARD,
    executor: Executor | None = None,
) -> Iterator[LinesDone]:
    """Translates the missing shards and yields the progress; finally writes the output and removes the shards."""
    folder = shards_folder(output)
    require_same_run(folder, {"key": work.key, "lines": size})
    with locked(folder):
        run = ResumableRun(folder, work, "txt")
        yield from run.run(lines, size, executor)
        run.join(output)
        shutil.rmtree(folder)


def shards_folder(output: Path) -> Path:
    return output.with_name(f"{output.name}.shards")


def require_same_run(folder: Path, about: dict[str, Any]) -> None:
    """Raises InputError if a folder contains shards of another model or of other options."""
    path = folder / "about.json"
    if path.exists():
        with contextlib.suppress(ValueError):
            if json.loads(path.read_text(encoding="utf-8")) == about:
                return
        raise InputError(
            f"{folder}: contains shards of another model, with other options or of another size: repeat the command "
            "that made them, or remove the folder"
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: contains files that are not shards: move it, or specify another output with -o")
    write_text(path, json.dumps(about))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder; raises InputError if another command is using it, on systems with file locks."""
    with (folder / "lock").open("w") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{folder}: another command is translating into it: wait until it ends") from None
        yield


def name_line(message: str, source: str, first: int) -> str:
    """Replaces "text 3:" in a message by "FILE:13:", for a shard that begins with line 11."""
    return re.sub(r"^text (\d+):", lambda match: f"{source}:{int(match[1]) + first - 1}:", message)


def model_files(folder: Path) -> dict[str, Path]:
    """Returns the files of a model folder that affect its translations, by name."""
    check_folder(folder)
    names = (SETTINGS, TOKENIZER, WEIGHTS, CONFIDENCE)
    return {name: folder / name for name in names if (folder / name).is_file()}
