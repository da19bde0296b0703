"""Models by task and direction; folders that change, are half-written, or come to harm while they are served."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from starlette.testclient import TestClient

from regard.decoding.model_loading import load_as
from regard.decoding.translation_results import Translation
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import InputError, ModelError
from regard.model_folder import CANARY, SETTINGS, WEIGHTS
from regard.serving import served_models as module
from regard.serving.application import create_app
from regard.serving.served_models import Models
from regard.tokens.language_directions import Direction
from tests.serving.toys import TEXTS, write_model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    several = ("de-en", "en-pt_BR", "en-fr")
    return {
        "en-de": write_model(place / "en-de", "en-de"),
        "several": write_model(place / "several", *several),
        "other": write_model(place / "other" / "en-de", "en-de", seed=1),
        "gpt": write_model(place / "gpt", task="write"),
        "bert": write_model(place / "bert", task="fill"),
        "nameless": write_model(place / "nameless"),
    }


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(folders["en-de"], tmp_path / "en-de"))


def copy_weights(source: Path, target: Path) -> None:
    shutil.copy(source / WEIGHTS, target / ".new")
    (target / ".new").replace(target / WEIGHTS)


def test_models_by_task_and_direction(folders: dict[str, Path]) -> None:
    models = Models.load([folders[name] for name in ("en-de", "several", "gpt", "bert")])
    assert [(each.name, each.settings.task) for each in models.served] == [
        ("en-de", "translate"),
        ("several", "translate"),
        ("gpt", "write"),
        ("bert", "fill"),
    ]
    assert list(map(str, models.directions)) == ["en-de", "de-en", "en-pt_BR", "en-fr"]
    assert models.queue(Direction("en", "de")) is models.served[0].queue
    assert models.queue(Direction("en", "fr")) is models.queue(Direction("de", "en")) is models.served[1].queue
    assert list(models.writers) == ["gpt"]
    assert isinstance(models.writers["gpt"].writer("A dog", max_tokens=3), str)
    assert list(models.encoders) == ["bert"]
    assert "gpt" not in models.encoders
    with pytest.raises(InputError, match="fr to de"):
        models.queue(Direction("fr", "de"))
    asyncio.run(models.close())


def test_folders_are_served_by_their_tasks(folders: dict[str, Path]) -> None:
    """Each model answers in the interface for its task."""
    models = Models.load([str(folders[name]) for name in ("en-de", "gpt", "bert")])
    assert models.names == ["en → de", "gpt", "bert"]
    app = create_app(models)
    with TestClient(app, base_url="http://localhost") as client:
        made = client.post("/translate", json={"q": "A dog runs.", "source": "en", "target": "de"}).json()
        assert made["translatedText"] == load_as(Translator, folders["en-de"])("A dog runs.").strip()
        asked = {"model": "gpt", "prompt": "A dog", "max_tokens": 3, "temperature": 0}
        written = client.post("/v1/completions", json=asked).json()["choices"][0]["text"]
        assert written == load_as(Writer, folders["gpt"])("A dog", max_tokens=3, temperature=0.0, beam=1)
        vectors = client.post("/v1/embeddings", json={"model": "bert", "input": "A dog"}).json()["data"]
        assert len(vectors[0]["embedding"]) == 16


def test_models_that_cannot_be_served_are_refused_at_once(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pass the model folders"):
        Models.load([])
    with pytest.raises(ModelError, match="no such folder"):
        Models.load([folders["en-de"], tmp_path / "nothing"])
    with pytest.raises(InputError, match="also named gpt"):
        Models.load([folders["gpt"], folders["gpt"]])
    with pytest.raises(InputError, match="both translate en → de: serve only one of them"):
        Models.load([folders["en-de"], Path(shutil.copytree(folders["en-de"], tmp_path / "again"))])
    with pytest.raises(ModelError, match="the languages are unknown"):
        Models.load([folders["nameless"]])


def test_a_changed_folder_is_served_without_losing_a_request(
    folders: dict[str, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [each.text for each in load_as(Translator, folder).translate(TEXTS)]
    after = [each.text for each in load_as(Translator, folders["other"]).translate(TEXTS)]
    assert before != after

    async def client(models: Models, answers: list[list[str]], replaced: asyncio.Event) -> None:
        last = False
        while not last:
            last = replaced.is_set() and len(answers) >= 20
            made: list[Translation] = await models.queue(Direction("en", "de")).translate(TEXTS)
            answers.append([each.text for each in made])
            await asyncio.sleep(0.002)

    async def work() -> None:
        models, answers = Models.load([folder]), [[] for _ in range(4)]  # type: ignore[var-annotated]
        old, replaced = models.queue(Direction("en", "de")), asyncio.Event()
        clients = [asyncio.create_task(client(models, each, replaced)) for each in answers]
        await asyncio.sleep(0.02)
        copy_weights(folders["other"], folder)
        await models.look()
        assert models.queue(Direction("en", "de")) is old, "it may still be written to"
        await models.look()
        assert models.queue(Direction("en", "de")) is not old
        replaced.set()
        assert [each.text for each in await old.translate(TEXTS)] == before, "who holds the old one may still use it"
        await asyncio.gather(*clients)
        for each in answers:
            assert len(each) > 20
            assert set(map(tuple, each)) <= {tuple(before), tuple(after)}
            assert each[-1] == after
        monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
        await models.look()
        assert models._retired == []
        assert old._closing
        await models.close()

    asyncio.run(work())


def test_a_damaged_folder_keeps_the_old_model_and_says_so_once(
    folders: dict[str, Path], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        models = Models.load([folder])
        queue, expected = models.queue(Direction("en", "de")), (await models.served[0].queue.translate(TEXTS))  # type: ignore[union-attr]
        whole = (folder / WEIGHTS).read_bytes()
        harms = {
            "half a file": lambda: (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2]),
            "no file": lambda: (folder / WEIGHTS).unlink(),
            "no settings": lambda: (folder / SETTINGS).write_text("task = 5"),
        }
        for harm in harms.values():
            caplog.clear()
            harm()
            for _ in range(4):
                await models.look()
            assert models.queue(Direction("en", "de")) is queue
            assert await queue.translate(TEXTS) == expected
            assert [record.levelno for record in caplog.records] == [logging.WARNING]
            assert "keeping the previous model" in caplog.text
        (folder / SETTINGS).write_bytes((folders["other"] / SETTINGS).read_bytes())
        copy_weights(folders["other"], folder)
        for _ in range(2):
            await models.look()
        assert models.queue(Direction("en", "de")) is not queue
        await models.close()

    asyncio.run(work())


def write_examples(folder: Path, *outputs: tuple[str, str]) -> None:
    examples = [{"source": source, "output": output} for source, output in outputs]
    (folder / CANARY).write_text(json.dumps({"version": 1, "examples": examples}))


@pytest.mark.parametrize("task", ["en-de", "gpt"])
def test_a_new_model_must_give_the_outputs_of_its_training(
    folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str
) -> None:
    folder = Path(shutil.copytree(folders[task], tmp_path / task))
    new = folders["other"] if task == "en-de" else write_model(tmp_path / "other", task="write", seed=1)

    def outputs() -> list[tuple[str, str]]:
        if task == "en-de":
            return [(text, load_as(Translator, new)(text, beam=1)) for text in TEXTS]
        return [(text, load_as(Writer, new)(text, max_tokens=4, temperature=0.0, beam=1)) for text in TEXTS]

    async def look(*examples: tuple[str, str]) -> tuple[bool, str]:
        """Changes the weights and the examples, and returns whether the new model is served, and what the log says."""
        caplog.clear()
        models = Models.load([folder])
        copy_weights(new, folder)
        write_examples(folder, *examples)
        for _ in range(3):
            await models.look()
        served = models.served[0].stamp == module.read_stamp(folder)
        await models.close()
        copy_weights(folders[task], folder)
        return served, caplog.text

    right = outputs()
    served, log = asyncio.run(look(*right[:-1], (right[-1][0], "something else")))
    assert (served, CANARY in log, "keeping the previous model" in log) == (False, True, True)
    served, log = asyncio.run(look(*right))
    assert (served, "serving the new model" in log) == (True, True)


@pytest.mark.parametrize("task", ["en-de", "gpt", "bert"])
def test_a_new_model_that_is_not_finite_is_not_served(
    folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str
) -> None:
    """Nor one whose examples cannot be read."""
    folder = Path(shutil.copytree(folders[task], tmp_path / task))

    async def work() -> None:
        models = Models.load([folder])
        served = models.served[0]
        tensors = load_file(folder / WEIGHTS)
        for tensor in tensors.values():
            tensor *= float("nan")
        save_file(tensors, folder / ".new")
        (folder / ".new").replace(folder / WEIGHTS)
        for _ in range(3):
            await models.look()
        assert models.served == [served]
        assert "finite" in caplog.text
        copy_weights(folders[task], folder)
        (folder / CANARY).write_text("{")
        for _ in range(3):
            await models.look()
        assert models.served == [served]
        assert f"{CANARY} is damaged" in caplog.text
        await models.close()

    asyncio.run(work())


def test_nothing_is_opened_while_it_is_written_or_for_no_reason(folder: Path) -> None:
    async def work() -> None:
        models = Models.load([folder])
        queue = models.queue(Direction("en", "de"))
        for _ in range(3):
            await models.look()
        for seconds in range(1, 5):
            os.utime(folder / WEIGHTS, (seconds, seconds))  # changes at every look
            await models.look()
        assert models.queue(Direction("en", "de")) is queue
        await models.close()

    asyncio.run(work())


def test_the_watch_looks_by_itself(folders: dict[str, Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)

    async def work() -> None:
        models = Models.load([folder, folders["gpt"]])
        watching, queue = asyncio.create_task(models.watch()), models.queue(Direction("en", "de"))
        copy_weights(folders["other"], folder)
        end = time.monotonic() + 30
        while models.queue(Direction("en", "de")) is queue and time.monotonic() < end:
            await asyncio.sleep(0.01)
        assert models.queue(Direction("en", "de")) is not queue
        watching.cancel()
        await models.close()

    asyncio.run(work())
