"""Opens a model for the explorer, runs texts through it, and keeps all tensors of its most recent runs.

run = regard.look("runs/en-de", "A dog runs.")
run["decoder.layers.0.cross_attention.weights"]   # [head, query:target, key:source]
run.save("dog.html")                              # the whole run as one page
"""

from __future__ import annotations

import ast
import hashlib
import html
import inspect
import json
import textwrap
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from msgspec import structs
from torch import Tensor

from regard import __version__
from regard.argument_checks import require_path, require_text
from regard.atomic_files import write_atomically
from regard.decoding.fill_classify_embed import Reader
from regard.decoding.native.native_search import NativeSearch
from regard.decoding.pytorch_engine import TorchSearch
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import InputError
from regard.explorer import embedding_space as space
from regard.explorer.derived_tensors import Derived, derive
from regard.explorer.lessons import Lesson
from regard.explorer.model_parts import Anatomy
from regard.explorer.recorded_pass import Pass
from regard.explorer.recorded_tasks import run_task
from regard.explorer.request_types import LIMITS, MissingError, read_request
from regard.explorer.training_history import TrainingHistory
from regard.model.observe import Seen
from regard.tokens.language_directions import Direction, choose_direction, directions_of
from regard.tokens.tokenizer import Vocabularies
from regard.weights import Contents, choose_device, read_folder

SOURCE = Path(__file__).parents[2]
Engine = Translator | Writer | Reader


class Explorer:
    """A model to explore, with its most recent runs."""

    def __init__(
        self,
        contents: Contents,
        name: str,
        folder: Path | None = None,
        examples: Sequence[str] = (),
        to: str | None = None,
        direction: Direction | None = None,
        kept: int = LIMITS.runs,
        *,
        about: str = "",
        start: Mapping[str, str | int] | None = None,
    ) -> None:
        """Explores a model; without a `folder` it has no checkpoints, and keeps the last `kept` runs.

        `about` says in a few words what the model is, `start` what the page selects at first, as in its address.
        """
        self.contents, self.name, self.folder, self.examples, self.kept = contents, name, folder, examples, kept
        self.about, self.start = about, dict(start or {})
        self.direction = direction or self.choose_direction(to)
        self.anatomy = Anatomy(contents)
        self.checkpoints = TrainingHistory(contents, folder)
        self.runs: OrderedDict[str, Run] = OrderedDict()
        self.lessons: dict[str, Lesson] = {}
        self.places: dict[str, tuple[str, int]] = {}  # file and line of the code that computed each tensor

    @classmethod
    def open(
        cls,
        path: Path | str,
        device: str = "auto",
        name: str = "",
        examples: Sequence[str] = (),
        to: str | None = None,
        *,
        about: str = "",
        start: Mapping[str, str | int] | None = None,
    ) -> Explorer:
        """Opens a model folder; `examples` are shown first, and `to` is the language to translate into.

        `about` is a short description of the model, and `start` the initial selection of the page, as in its URL.
        """
        folder = Path(path)
        contents = read_folder(folder, choose_device(device))
        return cls(contents, name or folder.resolve().name, folder, examples, to, about=about, start=start)

    def choose_direction(self, to: str | None) -> Direction:
        """Returns the direction into the language `to`, or by default the first direction of the model."""
        data = self.contents.settings.data
        return directions_of(data)[0] if to is None else choose_direction(data, target=to)

    def describe(self) -> dict[str, Any]:
        """Returns the description of the model for the page."""
        direction = str(self.direction) if self.contents.settings.data.directions else ""
        request, _ = read_request({"text": ""}, self.contents.settings.decoding)
        return {
            "schema": 1,
            "name": self.name,
            "path": None if self.folder is None else str(self.folder),
            "version": __version__,
            **self.anatomy.describe(),
            "languages": {"source": self.direction.source, "target": self.direction.target},
            "checkpoints": self.checkpoints.describe(),
            "decoding": request.decode,
            "about": self.about,
            "start": self.start,
            "examples": [*self.examples, *self.checkpoints.examples(direction=direction)],
            "limits": asdict(LIMITS),
            "lessons": [lesson.describe() for lesson in self.lessons.values()],
        }

    def run(self, fields: Mapping[str, Any]) -> Run:
        """Runs a text through the model, or returns the stored run of the same request."""
        request, settings = read_request(fields, self.contents.settings.decoding)
        if request.to is not None or self.contents.settings.data.directions:
            direction = self.direction if request.to is None else self.choose_direction(request.to)
            tag = direction.target if self.contents.settings.data.directions else None
            request = structs.replace(request, to=tag)
        name = hashlib.sha256(json.dumps(request.to_json(), sort_keys=True).encode()).hexdigest()[:16]
        if name not in self.runs:
            anatomy = self.anatomy if request.checkpoint is None else self.checkpoints.model(request.checkpoint)
            started = time.perf_counter()
            passed, answer = run_task(anatomy, request, settings)
            run = Run(name, self, passed, answer | {"ms": 1000 * (time.perf_counter() - started)})
            self.places |= passed.lines  # `observe` records where each value was seen, so this is the code that ran
            for each, tensor in run.derived.items():
                self.places[each] = inspect.getfile(tensor.source), inspect.getsourcelines(tensor.source)[1]
            self.runs[name] = run
        self.runs.move_to_end(name)
        while len(self.runs) > self.kept:
            self.runs.popitem(last=False)
        return self.runs[name]

    def find(self, name: str) -> Run:
        """Returns a stored run by its name."""
        if name not in self.runs:
            raise MissingError(f"run {name[:40]}: no longer stored; run the text again")
        self.runs.move_to_end(name)
        return self.runs[name]

    def find_source(self, name: str) -> dict[str, Any]:
        """Returns the line of code that computed a tensor, and the function that contains it."""
        if name not in self.places:
            raise MissingError(
                f"name: no recorded run has computed a tensor named {name[:100]!r}; run a text that computes it"
            )
        return describe_line(*self.places[name])

    @cached_property
    def usage(self) -> space.Usage | None:
        """The number of occurrences of each token in the training data, if the folder still contains the data."""
        return space.count_usage(self.anatomy, self.folder)


@cache
def describe_line(file: str, line: int) -> dict[str, Any]:
    """Returns a line of code, its location, and the innermost function or class that contains it."""
    text = Path(file).read_text(encoding="utf-8")
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    around = [node for node in nodes if node.lineno <= line <= (node.end_lineno or 0)]
    inner = max(around, key=lambda node: node.lineno)
    lines = text.splitlines()
    return {
        "file": Path(file).relative_to(SOURCE).as_posix(),
        "line": line,
        "code": lines[line - 1].strip(),
        "snippet": textwrap.dedent("\n".join(lines[inner.lineno - 1 : inner.end_lineno])),
        "start": inner.lineno,
    }


class Run:
    """One run of a model: `answer` describes it as JSON, and `run[name]` returns each tensor by its name."""

    def __init__(self, name: str, explorer: Explorer, passed: Pass, answer: dict[str, Any]) -> None:
        self.name, self.explorer, self.passed = name, explorer, passed
        self.derived: dict[str, Derived] = derive(passed)
        self.ablations: dict[str, dict[str, Any]] = {}  # effects already computed, by request
        tensors = {
            each: {"dtype": "f32", "shape": list(seen.tensor.shape), "axes": list(seen.axes)}
            for each, seen in passed.seen.items()
        } | {
            each: {"dtype": tensor.kind, "shape": list(tensor.shape), "axes": list(tensor.axes)}
            for each, tensor in self.derived.items()
        }
        self.answer: dict[str, Any] = {"run": name, **answer, "tensors": tensors}

    @property
    def anatomy(self) -> Anatomy:
        """The model that was run, which may be an earlier checkpoint."""
        return self.passed.anatomy

    def __repr__(self) -> str:
        text = self.answer.get("text", "")
        return f"<Run of {self.explorer.name}: {len(self.names())} tensors{f', output {text!r:.60}' if text else ''}>"

    def names(self) -> list[str]:
        """Returns the names of all recorded tensors in the order of computation, then those of derived tensors."""
        return [*self.passed.seen, *self.derived]

    def tensor(self, name: str) -> Seen:
        """Returns a tensor without its batch axis, with the names of its axes."""
        if name in self.passed.seen:
            return self.passed.seen[name]
        if name not in self.derived:
            raise MissingError(f"tensor {name[:100]}: this run has no tensor with that name")
        return Seen(self.derived[name].compute(), self.derived[name].axes)

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self.tensor(name).tensor
        except MissingError as error:
            raise KeyError(str(error)) from None

    def save(self, path: Path | str) -> None:
        """Writes the run as a page (.html), its description (.json) or its tensors (.safetensors)."""
        from regard.explorer.export import export_run

        path = Path(path)
        content = export_run(self, path.suffix)
        write_atomically(path, lambda temporary: temporary.write_bytes(content))

    def _repr_html_(self) -> str:
        """Returns the page in a frame, to be displayed in a notebook."""
        from regard.explorer.export import page_html

        page = html.escape(page_html(self))
        return f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:0" title="Regard"></iframe>'


def look(model: Path | str | Engine, text: str, **request: Any) -> Run:
    """Runs a text through a model folder or a loaded model such as a Translator, and keeps every tensor.

        >>> run = regard.look("runs/en-de", "A dog runs.")
        >>> run["decoder.layers.0.cross_attention.weights"].shape  # [head, query, key]
        >>> run.save("page.html")

    `request` has the other fields of a request: target, decode, patch, order, prefix, checkpoint, pair and to.
    """
    require_text(text, "look")
    if isinstance(model, str | Path):
        explorer = Explorer.open(require_path(model, "look"))
    elif isinstance(model, Engine):
        explorer = Explorer(contents_of(model), type(model).__name__.lower())
    else:
        raise InputError("look takes a model folder or a model that regard.load returned")
    return explorer.run({"text": text, **request})


def contents_of(engine: Engine) -> Contents:
    """Returns the settings, vocabularies and PyTorch model of a loaded model."""
    if isinstance(engine, Reader):
        return Contents(engine.settings, Vocabularies(engine.vocabulary, engine.vocabulary), engine.model)
    searcher = engine.searcher.reference if isinstance(engine.searcher, NativeSearch) else engine.searcher
    if not isinstance(searcher, TorchSearch):
        raise InputError("look needs a PyTorch model, which this engine does not have: pass the model folder to look")
    pair = (engine.source, engine.target) if isinstance(engine, Translator) else (engine.vocabulary, engine.vocabulary)
    return Contents(engine.settings, Vocabularies(*pair), searcher.model)
