"""Exports a run: its description as JSON, its tensors as safetensors, or all of it as one page without a server."""

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
from regard.explorer import embedding_space as space, parameters as weights
from regard.explorer.ablation import ablate
from regard.explorer.request_checks import LIMITS
from regard.weights import parameters

if TYPE_CHECKING:
    from regard.explorer.trace import Run

PAGE = Path(__file__).parent / "page"
MOST_BYTES = 50_000_000
MOST_FULL = 2_000_000
"""Maximum count of numbers in a page for which they are float32; larger runs are stored as float16."""
WINDOW = 12
"""Positions that the page's lens view shows at once."""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def run_json(run: Run) -> str:
    """Returns the description of a run as JSON."""
    return json.dumps(run.answer, ensure_ascii=False, indent=1) + "\n"


def run_safetensors(run: Run) -> bytes:
    """Returns all tensors of a run, including derived ones, as safetensors."""
    return pack(run, run.names())


def pack(run: Run, names: Iterable[str], *, half: bool = False) -> bytes:
    """Returns tensors of a run as safetensors, with the names of their axes in the metadata."""
    seen = {name: run.tensor(name) for name in dict.fromkeys(names)}
    tensors = {name: to_float16(tensor) if half else to_float32(tensor) for name, (tensor, _) in seen.items()}
    return safetensors_bytes(tensors, {name: axes for name, (_, axes) in seen.items()})


def to_float32(tensor: Tensor) -> Tensor:
    """Converts floating-point tensors to float32; leaves whole numbers unchanged."""
    return tensor.float() if tensor.is_floating_point() else tensor


def to_float16(tensor: Tensor) -> Tensor:
    """Converts floating-point tensors to float16, clamped to its range; leaves infinities and whole numbers."""
    if not tensor.is_floating_point():
        return tensor
    most = torch.finfo(torch.float16).max
    return torch.where(tensor.isinf(), tensor, tensor.clamp(-most, most)).half()


def safetensors_bytes(tensors: Mapping[str, Tensor], axes: Mapping[str, tuple[str, ...]]) -> bytes:
    """Returns the bytes of a safetensors file with the names of axes; equal tensors have equal bytes."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = save(plain, {f"axes.{name}": " ".join(names) for name, names in axes.items()} or None)
    (size,) = struct.unpack("<Q", content[:8])
    header = json.dumps(json.loads(content[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # aligns the numbers in memory
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def page_html(run: Run, *, page: Path | None = None) -> str:
    """Returns the page with the run in it, as one file that loads nothing else."""
    folder = page or PAGE
    try:
        index = (folder / "index.html").read_text(encoding="utf-8")
        style = (folder / "style.css").read_text(encoding="utf-8")
        scripts = {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.js"))}
    except OSError as error:
        raise ModelError(
            f"{folder}: cannot read the explorer's page ({error.strerror}): install Regard again"
        ) from None
    imports = {
        f"regard/{name}": f"data:text/javascript;base64,{base64.b64encode(content).decode()}"
        for name, content in scripts.items()
    }
    data, modules = script_json(page_data(run)), script_json({"imports": imports})
    parts = {
        r"<head>": f'<head>\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        r'<link[^>]*href="static/style\.css"[^>]*>': f"<style>\n{style}\n</style>",
        r'<script type="importmap">.*?</script>': f'<script type="importmap">{modules}</script>',
        r'<script type="module" src="static/main\.js"></script>': (
            f'<script type="application/json" id="regard-data">{data}</script>\n'
            '<script type="module">import "regard/main.js"</script>'
        ),
    }
    for pattern, new in parts.items():
        index, count = re.subn(pattern, lambda _, new=new: new, index, count=1, flags=re.DOTALL)  # type: ignore[misc]
        if not count:
            raise ModelError(f"{folder}: the page is damaged (index.html lacks {pattern}): install Regard again")
    if len(index.encode()) > MOST_BYTES:
        size = f"{len(index.encode()) / 1e6:.0f} MB"
        raise InputError(f"the page of this run would have {size}: use a shorter text, or save the run as .safetensors")
    return index


def script_json(value: Any) -> str:
    """Returns JSON for a script element, escaped so that nothing in it can end the element."""
    return (
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    )


def page_data(run: Run) -> dict[str, Any]:
    """Returns everything that the page would request from a server."""
    numbers = sum(torch.Size(about["shape"]).numel() for about in run.answer["tensors"].values())
    half = numbers > MOST_FULL
    answer = dict(run.answer)
    if half:
        note = f"this run has {numbers:,} numbers: in this file they are rounded to float16, to about three digits"
        answer["warnings"] = [*answer["warnings"], note]
    size = numbers * (2 if half else 4) * 4 // 3
    if size > MOST_BYTES:
        problem = f"the page of this run would have {size / 1e6:.0f} MB"
        raise InputError(f"{problem}: use a shorter text, or save the run as .safetensors")
    own = parameters(run.anatomy.model)
    small = sum(tensor.numel() for tensor in own.values()) <= LIMITS.weights
    kept = {name: tensor.float() for name, tensor in own.items()}
    return {
        "model": run.explorer.describe() | {"path": None},  # a page that is passed on does not contain the model's path
        "runs": [{"answer": answer, "tensors": to_base64(pack(run, run.names(), half=half))}],
        "weights": to_base64(safetensors_bytes(kept, {})) if small else None,
        "responses": responses(run, small),
        "ablate": {} if run.passed.answers is None else {"heads zero": ablate(run.passed, "heads", "zero")},
    }


def to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def responses(run: Run, small: bool) -> dict[str, Any]:
    """Returns the answers to the page's requests, by address."""
    explorer, anatomy = run.explorer, run.anatomy
    found: dict[str, Any] = {}
    for side in anatomy.lexicons:
        about, rows = space.positions(anatomy, side, 64)
        found[f"api/positions?side={side}&n=64"] = about
        if rows is not None:
            content = safetensors_bytes({"positions": rows}, {"positions": ("position", "width")})
            found[f"api/positions/tensor?side={side}&n=64"] = to_base64(content)
        ids = list(dict.fromkeys(token["id"] for token in run.answer["tokens"].get(side, [])))
        for token in ids:
            found[f"api/embeddings/near?side={side}&id={token}&k=12"] = explorer.near(side, token, 12, anatomy)
        found[f"api/embeddings/map?side={side}&n=400"] = explorer.map(side, 400, [], anatomy)
        named = f"api/embeddings/map?side={side}&n=400&ids={','.join(map(str, ids))}"
        found[named] = explorer.map(side, 400, ids, anatomy)
    found |= lens_responses(run)
    for name in run.names():
        found[f"api/source?name={name}"] = explorer.source_links.find(name)
    for name in parameters(anatomy.model) if small else ():
        found[f"api/weights/summary?name={name}"] = weights.summarize(anatomy, name)
    return found


def lens_responses(run: Run) -> dict[str, Any]:
    """Returns the texts of the tokens in each window of the lens that the answer does not contain."""
    shown = [token for tokens in run.answer["tokens"].values() for token in tokens]
    shown += [token for step in run.answer["steps"] for token in (step["chosen"], *step["top"])]
    known, side, found = {token["id"] for token in shown}, run.anatomy.written, {}
    for name in (f"{stack}.lens.ids" for stack in run.anatomy.stacks):
        if name in run.derived:
            best = run[name][:, :, 0]  # [P, T]
            for start in range(max(1, best.shape[1] - WINDOW + 1)):
                missing = sorted(set(best[:, start : start + WINDOW].flatten().tolist()) - known)
                address = f"api/embeddings/map?side={side}&n=1&ids={','.join(map(str, missing))}"
                if missing and address not in found:
                    found[address] = run.explorer.map(side, 1, missing, run.anatomy)
    return found
