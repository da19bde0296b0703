"""A published model that answers in node, to compare with the answers of the server."""

from __future__ import annotations

import base64
import json
import math
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from regard.explorer.model_explorer import Explorer, Run
from regard.explorer.published_site import publish

ANSWERS = Path(__file__).parent / "engine_answers.mjs"
CLOSE = 1e-5
"""Maximum difference of a number, relative to the largest of its tensor."""
CLOSE_ANSWER = 5e-5
"""Maximum difference of a number in JSON: log-probabilities are differences of logits, which reach 40 in the toys."""


class Engine:
    """The engine of a published page, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the JSON, or the tensors, of an answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"path": path, "body": body}), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        content = answer["json"] if answer["bytes"] is None else load(base64.b64decode(answer["bytes"]))
        return answer["status"], content


@contextmanager
def published(explorer: Explorer, folder: Path) -> Iterator[Engine]:
    site = folder / "site"
    publish([explorer], site)
    (site / "package.json").write_text('{"type": "module"}')  # node takes .js for something else
    model = next((site / "models").iterdir()).relative_to(site)
    command = ["node", str(ANSWERS), str(site), f"{model}/"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Engine(process)
        assert process.stdin is not None
        process.stdin.close()


def differences(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    """Where two answers in JSON differ, but for rounding, the name of the run and its time."""
    if place in (".ms", ".run"):
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs):
            yield f"{place}: {list(ours)} and {list(theirs)}"
        for name in ours.keys() & theirs.keys():
            yield from differences(ours[name], theirs[name], f"{place}.{name}")
    elif isinstance(ours, list | tuple) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{place}: {len(ours)} and {len(theirs)} items"
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(mine, other, f"{place}[{i}]")
    elif place.endswith(".drawn") and ours != theirs:
        yield f"{place}: {ours} and {theirs}"
    elif isinstance(ours, float) and isinstance(theirs, int | float) and not isinstance(theirs, bool):
        if not math.isclose(ours, theirs, rel_tol=CLOSE, abs_tol=CLOSE_ANSWER):
            yield f"{place}: {ours} and {theirs}"
    elif ours != theirs or (isinstance(ours, bool) is not isinstance(theirs, bool)):
        yield f"{place}: {ours!r} and {theirs!r}"


def wrong_tensors(run: Run, found: dict[str, torch.Tensor]) -> list[str]:
    """Names of tensors of a run that are not those which were found, with the largest difference."""
    wrong = []
    for name in run.names():
        ours, theirs = run[name].double(), found[name].double()
        finite = ours.isfinite()
        if ours.shape != theirs.shape or not torch.equal(finite, theirs.isfinite()):
            wrong.append(f"{name}: {list(ours.shape)} and {list(theirs.shape)}")
        elif finite.any():
            scale = max(1.0 if name.endswith(("entropy", "value_weighted")) else 1e-2, float(ours[finite].abs().max()))
            if name.endswith("lens.ids"):
                ours, theirs = ours[clear := clearly_ranked(run, name)], theirs[clear]
                finite = finite[clear]
            distance = float((ours - theirs)[finite].abs().max())
            if distance > (0 if name.endswith(("lens.ids", "lens.rank")) else CLOSE * scale):
                wrong.append(f"{name}: {distance}")
    return wrong


def clearly_ranked(run: Run, name: str) -> torch.Tensor:
    """Which tokens of the lens have a probability that is not, but for rounding, that of the next or the last one."""
    chances = run[name.replace("ids", "probabilities")].double()
    far = (chances[..., :-1] - chances[..., 1:]) > CLOSE * chances[..., :-1]
    yes = torch.ones_like(far[..., :1])
    return torch.cat([yes, far], -1) & torch.cat([far, ~yes], -1)


def compare(explorer: Explorer, engine: Engine, request: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Runs a request with the server's code and with the engine, and compares all that they give."""
    run = explorer.run(request)
    status, answer = engine.ask("api/run", request)
    assert status == 200, answer
    wrong = [*differences(run.answer, answer)]
    assert not wrong, wrong[:5]
    status, found = engine.ask(f"api/run/{answer['run']}/tensors?names={','.join(run.names())}")
    assert status == 200, found
    wrong = wrong_tensors(run, found)
    assert not wrong, wrong[:5]
    return run, answer
