"""Published advisories of programs like Regard, and for each the function that shows why it cannot happen here."""

from __future__ import annotations

import base64
import gzip
import hmac
import io
import json
import pickle
import struct
import time
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file
from starlette.testclient import TestClient

import regard
from regard.decoding.pytorch_engine import writer_of
from regard.decoding.writer import Writer
from regard.errors import RegardError
from regard.explorer.http_api import create_app as create_explorer
from regard.explorer.model_explorer import Explorer
from regard.files.formats.format_by_suffix import open_document
from regard.interop import huggingface, llama2c
from regard.interop.sentencepiece import read_sentencepiece
from regard.serving.application import create_app
from regard.serving.client_limits import KeyFile, make_key
from regard.weights import read_tensors
from tests.decoding.toys import toy
from tests.explorer.toys import contents
from tests.interop.limits import run_limited
from tests.interop.published import save_bert, save_llama
from tests.interop.test_damage import config, put
from tests.serving.fakes import FakeModels
from tests.serving.running import running

Check = Callable[[Path], None]
SOURCE = Path(regard.__file__).parent
QUESTION = {"q": "A dog", "source": "en", "target": "de"}


@dataclass(frozen=True)
class Exhibit:
    """One advisory: where it was, what it was, and the function that shows why it cannot happen here."""

    id: str
    product: str
    fact: str
    check: Check


# Model files


class Call:
    """Unpickled, it calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


def refused(source: Path, output: Path, reason: str = "") -> str:
    """Returns the one line with which an import is refused, within 2 seconds and 200 MB."""
    message = run_limited(lambda: huggingface.import_model(source, output))
    assert message.startswith("ModelError: "), message
    assert "\n" not in message
    assert reason in message, message
    return message


def pickled_model(folder: Path, payload: object, name: str = "pytorch_model.bin", *, zipped: bool = True) -> Path:
    """Returns a Hugging Face folder whose weights are a pickle with `payload` in it."""
    source = save_bert(folder / "theirs")
    weights = {**load_file(source / "model.safetensors"), "x": payload}
    (source / "model.safetensors").unlink()
    torch.save(weights, source / name, _use_new_zipfile_serialization=zipped)
    return source


def refuse_pickle(folder: Path, *, zipped: bool = True, function: Callable[..., Any] = Path.touch) -> None:
    """A pickle that calls a function is rejected, and the function is not called."""
    source = pickled_model(folder, Call(function, folder / "called"), zipped=zipped)
    refused(source, folder / "ours", "contains more than tensors and could run code")
    assert not (folder / "called").exists()


def refuse_pickle_of(folder: Path, module: str, name: str, *arguments: object) -> None:
    """A pickle that refers to any function outside a short list of permitted ones is rejected."""
    source = save_bert(folder / "theirs")
    (source / "model.safetensors").unlink()
    text = b"\x80\x02c" + f"{module}\n{name}\n".encode() + pickle.dumps(arguments, 2)[2:-1] + b"R."
    (source / "pytorch_model.bin").write_bytes(text)
    refused(source, folder / "ours", "could run code, or is damaged")


def ignore_other_pickles(folder: Path) -> None:
    """Pickles are never opened under any other file name."""
    source = save_bert(folder / "theirs")
    for name in ("training_args.bin", "optimizer.pt", "rng_state.pth", "scheduler.pt", "model.pkl", "weights.data"):
        torch.save(Call(Path.touch, folder / "called"), source / name)
    huggingface.import_model(source, folder / "ours")
    assert not (folder / "called").exists()


def edit_zip(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(bytes(content))


def refuse_edited_zip(folder: Path, change: Callable[[bytearray], None]) -> None:
    """An archive that a scanner would read differently from PyTorch is rejected like any other pickle."""
    source = pickled_model(folder, Call(Path.touch, folder / "called"))
    edit_zip(source / "pytorch_model.bin", change)
    refused(source, folder / "ours")
    assert not (folder / "called").exists()


def rename_in_directory(content: bytearray) -> None:
    """Gives the pickle another name in the directory of the archive than in its own header."""
    place = content.rindex(b"data.pkl")
    content[place : place + 8] = b"data.txt"


def set_flags(content: bytearray) -> None:
    """Marks the first entry as encrypted, in its header alone."""
    content[6] |= 1


def break_checksum(content: bytearray) -> None:
    """Damages the checksum of the first entry in the directory."""
    place = content.index(b"PK\x01\x02")
    content[place + 16] ^= 0xFF


def run_no_code_of_config(folder: Path, **entries: object) -> None:
    """Nothing in config.json can load code, and a Python module beside it is not imported."""
    source = save_bert(folder / "theirs")
    code = f"from pathlib import Path\nPath({str(folder / 'called')!r}).touch()\nclass A: pass\n"
    for name in ("modeling.py", "configuration.py", "tokenization.py", "modeling_bert.py", "__init__.py"):
        (source / name).write_text(code)
    config(**entries)(source)
    with suppress(RegardError):
        huggingface.import_model(source, folder / "ours")
    assert not (folder / "called").exists()


def render_no_template(folder: Path) -> None:
    """Templates in tokenizer files are not read."""
    source = save_llama(folder / "theirs")
    attack = "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for i in range(10**12) %}{% endfor %}"
    put("tokenizer_config.json", json.dumps({"chat_template": attack}))(source)
    assert run_limited(lambda: huggingface.import_model(source, folder / "ours")) == ""
    assert "jinja" not in (SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8").lower()


def refuse_gguf(folder: Path, *numbers: int) -> None:
    """Regard does not parse GGUF; the same damage is rejected in the formats that it does read."""
    path = folder / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack(f"<I{len(numbers)}Q", 3, *numbers) + bytes(64))
    message = run_limited(lambda: llama2c.import_model(path, None, folder / "ours"))
    assert "a GGUF file of llama.cpp, which Regard does not read" in message
    header = (*(number & 0xFFFFFFFF for number in numbers), *[1] * 7)[:7]
    (folder / "model.bin").write_bytes(struct.pack("<7I", *header) + bytes(64))
    message = run_limited(lambda: llama2c.import_model(folder / "model.bin", None, folder / "ours"))
    assert message.startswith("ModelError: "), message
    (folder / "model.bin").write_bytes(struct.pack("<7i", 16, 24, 2, 4, 2, 300, 32) + bytes(64))
    message = run_limited(lambda: llama2c.import_model(folder / "model.bin", None, folder / "ours"))
    assert "it is damaged: 92 bytes instead of" in message


def refuse_header(folder: Path, shape: list[int], offsets: list[int], size: int | None = None) -> None:
    """Names, shapes and offsets of tensors are checked against each other and against the size of the file."""
    path = folder / "weights.safetensors"
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}).encode()
    path.write_bytes(struct.pack("<Q", len(header) if size is None else size) + header + bytes(64))
    message = run_limited(lambda: read_tensors(path))
    assert message.startswith("ModelError: "), message
    assert "damaged or unreadable" in message, message


def refuse_lengths_of_pieces(folder: Path, length: int) -> None:
    """The length of a vocabulary piece is unsigned and must lie within the file."""
    path = folder / "tokenizer.bin"
    path.write_bytes(struct.pack("<I", 9) + struct.pack("<fI", 0.0, length & 0xFFFFFFFF) + b"abc")
    for pieces, reason in ((300, "fewer"), (1, "more")):  # of a single piece, only the end of the file shows the length
        message = run_limited(partial(llama2c._read_pieces, path, pieces))
        assert f"has {reason} than {pieces} pieces: not a llama2.c vocabulary" in message


def refuse_sentencepiece(folder: Path) -> None:
    """A SentencePiece model is parsed in Python, which checks each index."""
    path = folder / "tokenizer.model"
    long_piece = b"\x0a\xe8\x07" + b"a" * 1000
    for content, reason in (
        (b"\x0a\xff\xff\xff\xff\x0fabc", "not a SentencePiece model"),
        (b"\x0a\x03\x0a\x7fa", "not a SentencePiece model"),
        (b"\x1a\x06\x12\x04\xff\xff\xff\x7f", ""),
        (bytes(range(256)) * 40, "not a SentencePiece model"),
        (
            b"\x0a\x09\x0a\x05<unk>\x18\x02" + b"\x0a\x7f\x0a\x01a",
            "not a SentencePiece model",
        ),  # a piece beyond the end
        ((b"\x0a\xeb\x07" + long_piece) * 4_001, "its pieces have more than 4,000,000 characters"),
    ):
        path.write_bytes(content)
        message = run_limited(lambda: read_sentencepiece(path))
        assert message.startswith("ModelError: "), message
        assert reason in message, message


def refuse_ctranslate2(folder: Path) -> None:
    """A CTranslate2 folder is recognised by its file names and not parsed."""
    name = b"TransformerSpec\0"
    variable = struct.pack("<H4sB", 4, b"a/b\0", 4) + struct.pack("<4I", *[0xFFFFFFFF] * 4) + struct.pack("<BI", 0, 8)
    (folder / "theirs").mkdir()
    (folder / "theirs" / "model.bin").write_bytes(struct.pack("<IH", 6, len(name)) + name + variable)
    (folder / "theirs" / "config.json").write_text("{}")
    refused(folder / "theirs", folder / "ours", "which Regard writes but does not read")


def refuse_sparse_tensors(folder: Path) -> None:
    """Tensors that are not plain arrays are rejected before they are used."""
    indices = torch.tensor([[0, 10**6], [0, 10**6]])
    sparse = torch.sparse_coo_tensor(indices, torch.ones(2), (2, 2), check_invariants=False)
    source = pickled_model(folder, sparse)
    message = run_limited(lambda: huggingface.import_model(source, folder / "ours"))
    assert message.startswith("ModelError: "), message


def require_safe_pytorch(_folder: Path) -> None:
    """Regard requires a version of PyTorch that has the fix, and the installed one has it."""
    text = (SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    (required,) = [name for name in tomllib.loads(text)["project"]["dependencies"] if name.startswith("torch>")]
    for version in (required.removeprefix("torch>="), torch.__version__):
        assert tuple(map(int, version.split("+")[0].split(".")[:2])) >= (2, 6)


def refuse_names_outside(folder: Path, name: str) -> None:
    """An index of weights may only refer to files in its own folder."""
    source = save_bert(folder / "theirs")
    (source / "model.safetensors").rename(folder / "secret.safetensors")
    index = {"weight_map": {"bert.embeddings.word_embeddings.weight": name.format(folder=folder)}}
    put("model.safetensors.index.json", json.dumps(index))(source)
    refused(source, folder / "ours", "which is not in this folder")


def refuse_links_outside(folder: Path) -> None:
    """A link in a folder that leads out of it is not followed."""
    source = save_bert(folder / "theirs")
    (source / "vocab.txt").unlink()
    (source / "vocab.txt").symlink_to("/etc/passwd")
    refused(source, folder / "ours", "is a link to a file outside its folder")


def refuse_devices(folder: Path) -> None:
    """Devices and pipes, which may never end, are not read."""
    source = save_bert(folder / "theirs")
    (source / "config.json").unlink()
    (source / "config.json").symlink_to("/dev/random")
    refused(source, folder / "ours", "is not a regular file")


def refuse_bombs(folder: Path) -> None:
    """A compressed file may not grow without limit, and no archive is unpacked."""
    source = pickled_model(folder, torch.ones(1))
    path = source / "pytorch_model.bin"
    with zipfile.ZipFile(path) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in entries.items():
            new.writestr(name, bytes(250_000_000) if name.endswith("data.pkl") else content)
    refused(source, folder / "ours", "PyTorch does not compress its files")


def leave_archives(folder: Path) -> None:
    """An archive is recognised and never unpacked, whatever file names it contains."""
    path = folder / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../escaped", b"x")
    message = run_limited(lambda: llama2c.import_model(path, None, folder / "ours"))
    assert "a ZIP archive: unpack it" in message
    assert not list(folder.parents[1].glob("escaped"))


def refuse_sizes(folder: Path, **sizes: tuple[int, str]) -> None:
    """Sizes in config.json are checked against the tensors before memory is allocated."""
    for name, (size, reason) in sizes.items():
        source = save_bert(folder / name)
        config(**{name: size})(source)
        refused(source, folder / "ours", reason)


# Requests


@cache
def writer() -> Writer:
    return writer_of(toy("write", max_length=64))


def application() -> Any:
    """Returns a server with a translator that needs no model, and a small writer."""
    return create_app(FakeModels("en-de", writers={"gpt": writer()}), hosts=[])


def answer(path: str, body: object, **options: Any) -> tuple[int, str]:
    """Posts a request that must be answered within 5 seconds, and one more that must still be served."""
    with TestClient(application(), base_url="http://localhost", raise_server_exceptions=True) as client:
        began = time.monotonic()
        if isinstance(body, bytes):
            response = client.post(path, content=body, **options)
        else:
            response = client.post(path, json=body, **options)
        assert time.monotonic() - began < 5
        assert client.post("/translate", json=QUESTION).status_code == 200
    return response.status_code, response.text


def complete(_folder: Path, *, statuses: tuple[int, ...] = (400, 422), **options: object) -> None:
    """These options of a completion are rejected or ignored, and other clients are served."""
    status, text = answer("/v1/completions", {"model": "gpt", "prompt": "A dog", "max_tokens": 4, **options})
    assert status in statuses, (status, text)


def chat(_folder: Path, *, statuses: tuple[int, ...] = (200, 400, 422), **options: object) -> None:
    """These options of a chat are rejected or ignored, and other clients are served."""
    messages = [{"role": "user", "content": "A dog"}]
    status, text = answer("/v1/chat/completions", {"model": "gpt", "messages": messages, "max_tokens": 4, **options})
    assert status in statuses, (status, text)


def fetch_nothing(_folder: Path, address: str) -> None:
    """A request cannot make the server fetch an address: only text is accepted as content."""
    content = [{"type": "image_url", "image_url": {"url": address}}]
    chat(_folder, messages=[{"role": "user", "content": content}], statuses=(400, 422))


def tokens_of_attacker(_folder: Path) -> None:
    """Token ids outside the vocabulary are rejected."""
    for prompt in ([10**9], [-1], [[-5, 3]], [2**63]):
        status, text = answer("/v1/completions", {"model": "gpt", "prompt": prompt, "max_tokens": 2})
        assert status == 400, text


def embeds_are_ignored(_folder: Path) -> None:
    """A prompt is text or token ids; tensors from a client are never loaded."""
    buffer = io.BytesIO()
    torch.save(Call(Path.touch, _folder / "called"), buffer)
    body = {
        "model": "gpt",
        "prompt": "A",
        "max_tokens": 2,
        "prompt_embeds": base64.b64encode(buffer.getvalue()).decode(),
    }
    answer("/v1/completions", body)
    assert not (_folder / "called").exists()


def long_heads(_folder: Path) -> None:
    """Headers without end are rejected, and other clients are served."""
    with running(application()) as address:
        response = httpx.get(f"{address}health", headers={"X-A": "a" * 1_000_000})
        assert response.status_code in (400, 431)
        assert httpx.post(f"{address}translate", json=QUESTION).status_code == 200


def compare_in_constant_time(folder: Path) -> None:
    """A key is compared with all stored digests, in constant time."""
    key = make_key(folder / "keys", "one")
    compared: list[str] = []
    original = hmac.compare_digest

    def compare(left: str, right: str) -> bool:
        compared.append(left)
        return original(left, right)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hmac, "compare_digest", compare)
        keys = KeyFile(folder / "keys")
        assert keys.find(f"{key}x") is None
        assert keys.find(key) is not None
    assert len(compared) == 2
    assert key not in (folder / "keys").read_text()


def require_keys_everywhere(folder: Path) -> None:
    """If keys are required, no spelling of an address that runs a model accepts requests without one."""
    make_key(folder / "keys", "one")
    app = create_app(FakeModels("en-de"), keys=KeyFile(folder / "keys"), hosts=[])
    with TestClient(app, base_url="http://localhost") as client:
        for path in (
            "/translate",
            "/v1/completions",
            "//translate",
            "/translate/",
            "/v1/../translate",
            "/V1/completions",
        ):
            for headers in ({}, {"Authorization": "Bearer x"}, {"X-Forwarded-For": "127.0.0.1"}):
                status = client.post(path, json=QUESTION, headers=headers).status_code
                assert status in (400, 401, 403, 404, 405), (path, status)


def other_names(_folder: Path) -> None:
    """The server and the explorer on this machine answer only to their own host names, so DNS rebinding fails."""
    with TestClient(application(), base_url="http://evil.example") as client:
        assert client.post("/translate", json=QUESTION).status_code == 400
    with explorer() as client:
        assert client.get("/api/health", headers={"Host": "evil.example"}).status_code in (400, 403, 421)


def other_origins(_folder: Path, origin: str) -> None:
    """Pages of other sites can neither read answers nor request them."""
    with TestClient(application(), base_url="http://localhost") as client:
        response = client.post("/translate", json=QUESTION, headers={"Origin": origin})
        assert response.status_code == 403
        assert not [name for name in response.headers if name.startswith("access-control")]


def explorer() -> TestClient:
    page = SOURCE / "explorer" / "page"
    app = create_explorer(Explorer(contents("translate", norm="pre", tie="all"), "toy"), page)
    return TestClient(app, base_url="http://localhost:8000")


def no_files_of_the_server(folder: Path) -> None:
    """No path of a request reaches the file system."""
    (folder / "secret.json").write_text("root:")
    up = "..%2f" * 20
    paths = ["/file=/etc/passwd", f"/download_file/{up}etc%2fpasswd", f"/static/{up}etc%2fpasswd"]
    paths.append(f"/static/{up}{str(folder / 'secret.json')[1:].replace('/', '%2f')}")  # a suffix of the page's files
    with TestClient(application(), base_url="http://localhost") as server, explorer() as look:
        for client in (server, look):
            for path in (*paths, "/static/%2e%2e/%2e%2e/pyproject.toml", "//etc/passwd", "/component_server"):
                response = client.get(path)
                assert response.status_code in (400, 403, 404, 405), (path, response.status_code)
                assert "root:" not in response.text


def upload(name: str, content: bytes, statuses: tuple[int, ...] = (400, 403, 413, 415)) -> str:
    """Uploads a document that must be refused within 5 seconds; others are served."""
    files = {"file": (name, content)}
    with TestClient(application(), base_url="http://localhost") as client:
        began = time.monotonic()
        response = client.post("/translate_file", data={"source": "en", "target": "de"}, files=files)
        assert time.monotonic() - began < 5
        assert response.status_code in statuses, (response.status_code, response.text)
        assert client.post("/translate", json=QUESTION).status_code == 200
    return response.text


def expand_no_entities(folder: Path) -> None:
    """XML entities are not expanded, and no other file is read."""
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    for declarations, use in ((f'<!ENTITY l0 "ha">{laughs}', "&l11;"), ('<!ENTITY x SYSTEM "/etc/passwd">', "&x;")):
        text = f'<?xml version="1.0"?><!DOCTYPE tmx [{declarations}]><tmx version="1.4"><header srclang="en"/><body>'
        text += f'<tu><tuv xml:lang="en"><seg>{use}</seg></tuv></tu></body></tmx>'
        path = folder / "a.tmx"
        path.write_text(text)
        message = run_limited(partial(open_document, path, "en", "de"))
        assert message.startswith("DataError: "), message


def compressed_documents(folder: Path) -> None:
    """A compressed document that grows without limit is not read to its end."""
    path = folder / "a.tmx.gz"
    head = b'<tmx version="1.4"><header srclang="en"/><body>'
    path.write_bytes(gzip.compress(head + b" " * 60_000_000))
    text = upload("a.tmx.gz", path.read_bytes(), statuses=(400,))
    assert "file format not supported" in text


def multipart(_folder: Path, content_type: str, body: bytes) -> None:
    """Malformed forms are rejected at once."""
    status, _ = answer("/translate_file", body, headers={"Content-Type": content_type})
    assert status in (400, 413, 415, 422)


def json_body(_folder: Path, body: bytes) -> None:
    """Malformed or extreme JSON is rejected at once."""
    status, _ = answer("/translate", body, headers={"Content-Type": "application/json"})
    assert status in (400, 413, 422)


def hostile_text(_folder: Path, text: str) -> None:
    """Text that makes a regular expression slow elsewhere is translated in linear time."""
    status, _ = answer("/translate", {**QUESTION, "q": text[:40_000], "format": "html"})
    assert status in (200, 400)


def hostile_pattern(folder: Path) -> None:
    """Regular expressions in requests are not compiled, and those in a tokenizer are checked."""
    source = save_bert(folder / "theirs")
    for expression in ("(a+)+$", "(?:b*)*c", "((x|y){2,})+"):
        step = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        tokenizer = {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "pre_tokenizer": step}
        put("tokenizer.json", json.dumps(tokenizer))(source)
        refused(source, folder / "ours", "which can take exponential time")
    complete(folder, statuses=(200, 400, 422), guided_regex="(a+)+$" * 50, structured_outputs={"regex": "(a*)*" * 99})


def no_sockets_of_pickles(_folder: Path) -> None:
    """No process of Regard unpickles data from another: the source never calls an unpickler."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in ("pickle.load", "pickle.Unpickler", "recv_pyobj", "import zmq", "object_list(", "gather_object("):
            assert name not in text, (path, name)
        assert "torch.load(" not in text or "weights_only=True" in text, path


def listens_on_this_machine(_folder: Path) -> None:
    """The servers listen on this machine only, unless the user specifies another address."""
    for name in ("serve", "look"):
        text = (SOURCE / "cli" / f"{name}.py").read_text(encoding="utf-8")
        assert "127.0.0.1" in text or "localhost" in text
        assert 'default="0.0.0.0"' not in text


def no_assertions_for_safety(folder: Path) -> None:
    """Activations are chosen from a list, with an error that python -O does not remove."""
    source = save_bert(folder / "theirs")
    for name in ("__import__", "os.system", "../gelu", "eval"):
        config(hidden_act=name)(source)
        refused(source, folder / "ours", "which Regard does not support")


# The exhibits

VLLM, TRANSFORMERS, SCANNER, OLLAMA, LLAMA = "vLLM", "Transformers", "picklescan", "Ollama", "llama.cpp"
GRADIO, PILLOW = "Gradio", "Pillow"
MANY = 2**31 - 1
EXHIBITS = tuple(
    Exhibit(*row)
    for row in (
        ("CVE-2025-24357", VLLM, "torch.load ran the code in the weights of a downloaded model", refuse_pickle),
        (
            "GHSA-ggpf-24jw-3fcw",
            VLLM,
            "the fix of CVE-2025-24357 had no effect with PyTorch before 2.6",
            require_safe_pytorch,
        ),
        ("CVE-2025-32434", "PyTorch", "torch.load with weights_only=True could still run code", require_safe_pytorch),
        (
            "CVE-2024-3568",
            TRANSFORMERS,
            "load_repo_checkpoint unpickled files of a checkpoint",
            ignore_other_pickles,
        ),
        (
            "CVE-2026-1839",
            TRANSFORMERS,
            "the trainer loaded the state of the random number generator with an unsafe torch.load",
            ignore_other_pickles,
        ),
        (
            "CVE-2023-6730",
            TRANSFORMERS,
            "a pickle in a downloaded model folder was loaded and ran code",
            partial(refuse_pickle, zipped=False),
        ),
        (
            "CVE-2023-7018",
            TRANSFORMERS,
            "untrusted model data was deserialized",
            partial(refuse_pickle_of, module="os", name="system"),
        ),
        (
            "CVE-2024-11392",
            TRANSFORMERS,
            "untrusted model data was deserialized",
            partial(refuse_pickle_of, module="builtins", name="exec"),
        ),
        (
            "CVE-2024-11393",
            TRANSFORMERS,
            "untrusted model data was deserialized",
            partial(refuse_pickle_of, module="subprocess", name="Popen"),
        ),
        (
            "CVE-2024-11394",
            TRANSFORMERS,
            "untrusted model data was deserialized",
            partial(refuse_pickle_of, module="runpy", name="run_path"),
        ),
        (
            "CVE-2025-1716",
            SCANNER,
            "the list of forbidden functions lacked pip.main",
            partial(refuse_pickle_of, module="pip", name="main"),
        ),
        (
            "CVE-2026-56315",
            SCANNER,
            "the list of forbidden functions lacked modules of the standard library such as uuid and imaplib",
            partial(refuse_pickle_of, module="uuid", name="_get_command_stdout"),
        ),
        (
            "CVE-2026-56304",
            SCANNER,
            "a pickle could create files through logging.FileHandler",
            partial(refuse_pickle_of, module="logging", name="FileHandler"),
        ),
        ("CVE-2025-1889", SCANNER, "pickles with an unusual extension were not scanned", ignore_other_pickles),
        (
            "CVE-2025-1944",
            SCANNER,
            "a changed file name in the ZIP archive hid a pickle from the scan",
            partial(refuse_edited_zip, change=rename_in_directory),
        ),
        (
            "CVE-2025-1945",
            SCANNER,
            "flipped flag bits in the ZIP archive hid a pickle from the scan",
            partial(refuse_edited_zip, change=set_flags),
        ),
        ("CVE-2024-9052", VLLM, "objects from other processes of a group were unpickled", no_sockets_of_pickles),
        ("CVE-2024-9053", VLLM, "the RPC server unpickled the data that it received", no_sockets_of_pickles),
        ("CVE-2024-11041", VLLM, "a message queue unpickled the data that it received", no_sockets_of_pickles),
        ("CVE-2025-29783", VLLM, "the Mooncake integration unpickled data from the network", no_sockets_of_pickles),
        ("CVE-2025-32444", VLLM, "the Mooncake integration unpickled data from ZeroMQ", no_sockets_of_pickles),
        ("CVE-2025-47277", VLLM, "PyNcclPipe deserialized data from any client", no_sockets_of_pickles),
        ("CVE-2025-30165", VLLM, "nodes of a cluster unpickled data from a ZeroMQ socket", no_sockets_of_pickles),
        ("CVE-2025-30202", VLLM, "a ZeroMQ socket of a cluster was open on all interfaces", listens_on_this_machine),
        (
            "CVE-2025-66448",
            VLLM,
            "auto_map in config.json loaded foreign code without trust_remote_code",
            partial(run_no_code_of_config, auto_map={"AutoConfig": "configuration.A", "AutoModel": "modeling.A"}),
        ),
        (
            "CVE-2026-22807",
            VLLM,
            "auto_map loaded foreign code while a model was initialized",
            partial(run_no_code_of_config, auto_map={"AutoModel": "evil/repository--modeling.A"}),
        ),
        (
            "CVE-2026-27893",
            VLLM,
            "model files turned on trust_remote_code although the user had turned it off",
            partial(run_no_code_of_config, trust_remote_code=True, vision_config={"trust_remote_code": True}),
        ),
        (
            "CVE-2026-4372",
            TRANSFORMERS,
            "_attn_implementation_internal in config.json downloaded and ran code",
            partial(
                run_no_code_of_config, _attn_implementation_internal="evil/kernel", attn_implementation="modeling.A"
            ),
        ),
        (
            "CVE-2026-5241",
            TRANSFORMERS,
            "initializing a LightGlue model could run foreign code",
            partial(run_no_code_of_config, keypoint_detector_config={"auto_map": {"AutoModel": "modeling.A"}}),
        ),
        (
            "CVE-2026-41523",
            VLLM,
            "an assert statement guarded the loading of activation functions",
            no_assertions_for_safety,
        ),
        (
            "CVE-2024-34359",
            "llama-cpp-python",
            "the chat template of a model file was rendered without a sandbox",
            render_no_template,
        ),
        (
            "CVE-2024-21802",
            LLAMA,
            "the number of dimensions in a GGUF file overflowed a buffer",
            partial(refuse_header, shape=[2**31] * 40, offsets=[0, 64]),
        ),
        (
            "CVE-2024-23605",
            LLAMA,
            "the number of key-value pairs in a GGUF file overflowed a buffer",
            lambda folder: refuse_gguf(folder, 0, 2**63),
        ),
        (
            "CVE-2024-21836",
            LLAMA,
            "the number of tensors in a GGUF file overflowed a buffer",
            lambda folder: refuse_gguf(folder, 2**63, 0),
        ),
        (
            "CVE-2025-53630",
            LLAMA,
            "the sum of the sizes of tensors overflowed when a GGUF file was loaded",
            partial(refuse_header, shape=[2**62, 4], offsets=[0, 64]),
        ),
        (
            "CVE-2025-49847",
            LLAMA,
            "the length of a vocabulary token was cast to a signed number",
            partial(refuse_lengths_of_pieces, length=-1),
        ),
        (
            "CVE-2026-21869",
            LLAMA,
            "a negative n_discard in a request wrote outside the memory of the context",
            partial(complete, n_discard=-5, n_keep=-5, cache_prompt=True, statuses=(200, 400, 422)),
        ),
        (
            "CVE-2026-7482",
            OLLAMA,
            "a tensor that claimed to be larger than its file leaked memory of the process",
            partial(refuse_header, shape=[1024, 1024], offsets=[0, 4 * 1024 * 1024]),
        ),
        (
            "CVE-2024-39720",
            OLLAMA,
            "a GGUF file cut off after four bytes crashed the server",
            refuse_gguf,
        ),
        ("CVE-2024-39721", OLLAMA, "/dev/random as a model file blocked the server", refuse_devices),
        (
            "CVE-2024-37032",
            OLLAMA,
            "the digest of a layer could be a path that leads out of the model folder",
            partial(refuse_names_outside, name="../secret.safetensors"),
        ),
        ("CVE-2024-45436", OLLAMA, "entries of a ZIP archive were unpacked outside its folder", leave_archives),
        ("CVE-2024-12886", OLLAMA, "a decompression bomb from a server exhausted memory", refuse_bombs),
        (
            "CVE-2025-0315",
            OLLAMA,
            "a GGUF file could make the server allocate unlimited memory",
            partial(
                refuse_sizes,
                vocab_size=(MANY, "is 2,147,483,647, but no "),
                hidden_size=(MANY, "is 2,147,483,647, but no "),
                num_hidden_layers=(MANY, "is 2,147,483,647, but there are only"),
            ),
        ),
        ("CVE-2024-28224", OLLAMA, "a web page could use the server through DNS rebinding", other_names),
        ("CVE-2026-1260", "SentencePiece", "a crafted model overflowed the heap", refuse_sentencepiece),
        (
            "OpenNMT/CTranslate2#2068",
            "CTranslate2",
            "a crafted model overflowed the heap when it was loaded",
            refuse_ctranslate2,
        ),
        (
            "OpenNMT/CTranslate2#2091",
            "CTranslate2",
            "sizes of tensors in a model file were trusted before memory was allocated",
            refuse_ctranslate2,
        ),
        (
            "CVE-2022-25882",
            "ONNX",
            "the external data of a model could be read from any path",
            partial(refuse_names_outside, name="{folder}/secret.safetensors"),
        ),
        ("CVE-2025-62164", VLLM, "sparse tensors in prompt embeddings corrupted memory", refuse_sparse_tensors),
        (
            "CVE-2026-56340",
            VLLM,
            "prompt embeddings from clients were loaded with torch.load",
            embeds_are_ignored,
        ),
        (
            "CVE-2025-62372",
            VLLM,
            "embeddings of a wrong shape in a request crashed the engine",
            partial(chat, messages=[{"role": "user", "content": [{"type": "image_embeds", "image_embeds": "AAAA"}]}]),
        ),
        (
            "CVE-2024-8768",
            VLLM,
            "a completion of an empty prompt crashed the server",
            partial(complete, prompt="", statuses=(200, 400)),
        ),
        ("CVE-2024-8939", VLLM, "a large best_of exhausted the server", partial(complete, n=1, best_of=10**9)),
        (
            "CVE-2025-48944",
            VLLM,
            "malformed patterns and types in the schema of a tool crashed the worker",
            partial(
                chat,
                tools=[
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "parameters": {"type": "something", "properties": {"a": {"type": [], "pattern": "\\x"}}},
                        },
                    }
                ],
                tool_choice="required",
            ),
        ),
        (
            "CVE-2026-55574",
            VLLM,
            "regular expressions in requests were compiled without a time limit",
            hostile_pattern,
        ),
        (
            "CVE-2025-29770",
            VLLM,
            "each new schema in a request enlarged a cache on disk without limit",
            partial(complete, guided_json={"type": "object"}, guided_grammar="root ::= root", statuses=(200, 400, 422)),
        ),
        (
            "CVE-2025-6242",
            VLLM,
            "the server fetched any address given in a request",
            partial(fetch_nothing, address="http://169.254.169.254/latest/meta-data"),
        ),
        (
            "CVE-2026-24779",
            VLLM,
            "the check of addresses in requests could be bypassed",
            partial(fetch_nothing, address="http:\\\\127.0.0.1@evil.example/a.png"),
        ),
        ("CVE-2025-59425", VLLM, "the time for comparing keys depended on the keys", compare_in_constant_time),
        ("CVE-2026-48746", VLLM, "the check of keys could be bypassed", require_keys_everywhere),
        (
            "CVE-2025-48956",
            VLLM,
            "request headers had no size limit",
            long_heads,
        ),
        (
            "CVE-2024-47084",
            GRADIO,
            "the origin of a request with a cookie was not compared",
            partial(other_origins, origin="https://evil.example"),
        ),
        ("CVE-2024-47165", GRADIO, "the origin null was accepted", partial(other_origins, origin="null")),
        (
            "CVE-2024-24762",
            "python-multipart",
            "a regular expression took exponential time for a content type",
            partial(multipart, content_type='multipart/form-data; !="' + '\\\\"' * 3000, body=b"--x--"),
        ),
        (
            "CVE-2024-53981",
            "python-multipart",
            "data around the boundaries of a form took much time",
            partial(
                multipart,
                content_type="multipart/form-data; boundary=x",
                body=b"\r\n" * 500_000 + b"--x--" + b"\n" * 500_000,
            ),
        ),
        (
            "CVE-2013-1664",
            "Python",
            "XML entities that refer to each other expanded without limit",
            expand_no_entities,
        ),
        (
            "CVE-2020-10735",
            "Python",
            "reading a number of many digits took quadratic time",
            partial(json_body, body=b'{"q": ' + b"1" * 1_900_000 + b', "source": "en", "target": "de"}'),
        ),
        (
            "CVE-2024-23496",
            LLAMA,
            "the length of a string in a GGUF file overflowed a buffer",
            partial(refuse_lengths_of_pieces, length=MANY),
        ),
        (
            "CVE-2024-8063",
            OLLAMA,
            "a model without blocks made the server divide by zero",
            partial(
                refuse_sizes,
                num_hidden_layers=(0, "must be a whole number above 0"),
                num_attention_heads=(0, "must be a whole number above 0"),
            ),
        ),
        (
            "CVE-2025-10156",
            SCANNER,
            "a wrong checksum in the ZIP archive ended the scan",
            partial(refuse_edited_zip, change=break_checksum),
        ),
        ("CVE-2023-51449", GRADIO, "the route /file returned any file of the server", no_files_of_the_server),
        (
            "CVE-2024-27454",
            "orjson",
            "deeply nested JSON exhausted the stack",
            partial(json_body, body=b"[" * 1_000_000),
        ),
        ("CVE-2022-45198", PILLOW, "a small compressed file grew without limit", compressed_documents),
        (
            "CVE-2019-16865",
            PILLOW,
            "memory was allocated for sizes in a file before they were checked against it",
            partial(refuse_header, shape=[2**33, 2**33], offsets=[0, 64]),
        ),
        (
            "CVE-2023-44271",
            PILLOW,
            "a long text took unlimited memory",
            partial(json_body, body=json.dumps({**QUESTION, "q": "a" * 1_900_000}).encode()),
        ),
        (
            "CVE-2021-23437",
            PILLOW,
            "a regular expression took quadratic time for a long name of a colour",
            partial(hostile_text, text="<font color='rgb(" + "1" * 30_000 + "'>"),
        ),
    )
)


def page() -> str:
    """Returns the text of docs/museum.md."""
    rows = "\n".join(f"| {each.id} | {each.product} | {each.fact} | {reason(each)} |" for each in EXHIBITS)
    return f"{INTRODUCTION}\n| advisory | program | fault | why Regard is not affected |\n|---|---|---|---|\n{rows}\n"


def reason(exhibit: Exhibit) -> str:
    """Returns the first sentence of what the check of an exhibit shows."""
    check = exhibit.check
    function = check.func if isinstance(check, partial) else check
    text = function.__doc__ or refuse_gguf.__doc__ or ""
    return text.split("\n")[0].strip().removesuffix(".")


INTRODUCTION = f"""# Museum

Programs that load, run or serve models have published many security advisories. This page lists {len(EXHIBITS)} of
them. For each, `tests/museum/test_museum.py::test_it_cannot_happen_here` attacks Regard in the same way, so the same
mistake cannot go unnoticed. The page of [threats](threats.md) lists what Regard promises and what it does not.

`python -m tests.museum` generates the table from `tests/museum/exhibits.py`.
"""
