"""Exports a run: its description as JSON, its tensors as safetensors, or all of it as a page that needs no server."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor

from regard.errors import InputError, ModelError
from regard.explorer import embedding_space as space, weight_matrices as weights
from regard.explorer.ablation import ablate
from regard.explorer.page_files import ENGINE, PAGE
from regard.explorer.request_types import LIMITS, MissingError
from regard.weights import parameters

if TYPE_CHECKING:
    from regard.explorer.model_explorer import Run

MAX_BYTES = 50_000_000
MAX_FLOAT32_VALUES = 2_000_000
"""Maximum number of values in a page that are stored as float32; larger runs are stored as float16."""
WINDOW = 12
"""Number of positions that the logit lens of the page shows at once."""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def export_run(run: Run, suffix: str, page: Path | None = None) -> bytes:
    """Returns a run as a page (.html), its description (.json) or its tensors (.safetensors)."""
    if suffix == ".html":
        return page_html(run, page=page).encode()
    if suffix == ".json":
        return (json.dumps(run.answer, ensure_ascii=False, indent=1) + "\n").encode()
    if suffix == ".safetensors":
        return pack(run, run.names())
    raise MissingError(f"cannot save a run as {suffix[:20]!r}; use .html, .json or .safetensors")


def pack(run: Run, names: Iterable[str], *, half: bool = False) -> bytes:
    """Returns tensors of a run as a safetensors file in float32 or float16, with the names of axes as metadata."""
    seen = {name: run.tensor(name) for name in dict.fromkeys(names)}
    tensors = {
        name: tensor if not tensor.is_floating_point() else to_float16(tensor) if half else tensor.float()
        for name, (tensor, _) in seen.items()
    }
    return safetensors_bytes(tensors, {name: axes for name, (_, axes) in seen.items()})


def to_float16(tensor: Tensor) -> Tensor:
    """Converts a tensor to float16; values beyond its range are clamped, but infinities are kept."""
    most = torch.finfo(torch.float16).max
    return torch.where(tensor.isinf(), tensor, tensor.clamp(-most, most)).half()


def safetensors_bytes(tensors: Mapping[str, Tensor], axes: Mapping[str, tuple[str, ...]]) -> bytes:
    """Returns the bytes of a safetensors file with the names of axes; the same tensors give the same bytes."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = save(plain, {f"axes.{name}": " ".join(names) for name, names in axes.items()} or None)
    (size,) = struct.unpack("<Q", content[:8])
    header = json.dumps(json.loads(content[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # aligns the tensors in memory
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def page_html(run: Run, *, page: Path | None = None) -> str:
    """Returns the page with the run as a single HTML file that loads nothing else."""
    folder = page or PAGE
    try:
        index, style = ((folder / name).read_text(encoding="utf-8") for name in ("index.html", "style.css"))
        paths = [path for path in sorted(folder.rglob("*.js")) if path.parent.name != ENGINE]
        scripts = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    except OSError as error:
        problem = f"{folder}: cannot read the explorer's page ({error.strerror})"
        raise ModelError(f"{problem}: install Regard again") from None
    imports = {f"regard/{name}": f"data:text/javascript;base64,{to_base64(text)}" for name, text in scripts.items()}
    data, modules = script_json(page_data(run)), script_json({"imports": imports})
    parts = {
        r"<head>": f'<head>\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        r'<link[^>]*href="static/style\.css"[^>]*>': f"<style>\n{style}\n</style>",
        r'<script type="importmap">.*?</script>': f'<script type="importmap">{modules}</script>',
        r'<script type="module" src="static/explorer-app\.js"></script>': (
            f'<script type="application/json" id="regard-data">{data}</script>\n'
            '<script type="module">import "regard/explorer-app.js"</script>'
        ),
    }
    for pattern, new in parts.items():
        before, *after = re.split(pattern, index, maxsplit=1, flags=re.DOTALL)
        if not after:
            raise ModelError(f"{folder}: the page is damaged (index.html lacks {pattern}): install Regard again")
        index = before + new + after[0]
    require_size(len(index.encode()))
    return index


def require_size(size: int) -> None:
    """Raises InputError if a page would have more than `MAX_BYTES` bytes."""
    if size > MAX_BYTES:
        problem = f"the page of this run would have {size / 1e6:.0f} MB"
        raise InputError(f"{problem}: use a shorter text, or save the run as .safetensors")


def script_json(value: Any) -> str:
    """Returns JSON for a script element, escaped so that it cannot end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def page_data(run: Run) -> dict[str, Any]:
    """Returns all data that the page would otherwise request from a server."""
    numbers = sum(torch.Size(about["shape"]).numel() for about in run.answer["tensors"].values())
    half = numbers > MAX_FLOAT32_VALUES
    require_size(numbers * (2 if half else 4) * 4 // 3)
    answer = dict(run.answer)
    if half:
        note = f"this run has {numbers:,} values, which are rounded to float16 (about three digits) in this file"
        answer["warnings"] = [*answer["warnings"], note]
    own = parameters(run.anatomy.model)
    small = sum(tensor.numel() for tensor in own.values()) <= LIMITS.weights
    return {
        "model": run.explorer.describe() | {"path": None},  # a shared page must not contain the path of the model
        "runs": [{"answer": answer, "tensors": to_base64(pack(run, run.names(), half=half))}],
        "weights": to_base64(safetensors_bytes({name: own[name].float() for name in own}, {})) if small else None,
        "responses": responses(run, small),
        "ablate": {} if run.passed.answers is None else {"heads zero": ablate(run.passed, "heads", "zero")},
    }


def to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def responses(run: Run, small: bool) -> dict[str, Any]:
    """Returns the answers to the requests of the page, keyed by URL."""
    anatomy, usage, answers = run.anatomy, run.explorer.usage, dict[str, Any]()
    for side in anatomy.lexicons:
        about, rows = space.positions(anatomy, side, 64)
        answers[f"api/positions?side={side}&n=64"] = about
        if rows is not None:
            content = safetensors_bytes({"positions": rows}, {"positions": ("position", "width")})
            answers[f"api/positions/tensor?side={side}&n=64"] = to_base64(content)
        ids = list(dict.fromkeys(token["id"] for token in run.answer["tokens"].get(side, [])))
        for token in ids:
            answers[f"api/embeddings/near?side={side}&id={token}&k=12"] = space.near(anatomy, side, token, 12, usage)
        address = f"api/embeddings/map?side={side}&n=400"
        answers[address] = space.embedding_map(anatomy, side, 400, [], usage)
        answers[f"{address}&ids={','.join(map(str, ids))}"] = space.embedding_map(anatomy, side, 400, ids, usage)
    answers |= lens_responses(run)
    answers |= {f"api/source?name={name}": run.explorer.find_source(name) for name in run.names()}
    names = parameters(anatomy.model) if small else ()
    return answers | {f"api/weights/summary?name={name}": weights.summarize(anatomy, name) for name in names}


def lens_responses(run: Run) -> dict[str, Any]:
    """Returns the token texts for each window of the logit lens that are not in the answer."""
    shown = [token for tokens in run.answer["tokens"].values() for token in tokens]
    shown += [token for step in run.answer["steps"] for token in (step["chosen"], *step["top"])]
    known, side, answers = {token["id"] for token in shown}, run.anatomy.written, {}
    for name in [f"{stack}.lens.ids" for stack in run.anatomy.stacks if f"{stack}.lens.ids" in run.derived]:
        best = run[name][:, :, 0]  # [P, T]
        for start in range(max(1, best.shape[1] - WINDOW + 1)):
            missing = sorted(set(best[:, start : start + WINDOW].flatten().tolist()) - known)
            address = f"api/embeddings/map?side={side}&n=1&ids={','.join(map(str, missing))}"
            if missing and address not in answers:
                answers[address] = space.embedding_map(run.anatomy, side, 1, missing, run.explorer.usage)
    return answers
