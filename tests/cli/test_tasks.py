"""Training, writing, filling, labelling, embedding and measuring by command."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from regard.cli import main
from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
from regard.decoding.model_loading import load_as
from regard.decoding.writer import Writer
from regard.evaluation.classification_scores import compare_labels
from regard.model_folder import read_settings
from tests.cli.conftest import TINY
from tests.cli.running import Done, call, process, with_settings
from tests.training.toys import write_labels, write_text, write_words

Capture = pytest.CaptureFixture[str]
BRIEF = [*TINY, "--training.steps", "4", "--training.evaluate_every", "2"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """A model folder for each task, and what the command printed while it trained; nobody changes them."""
    folder = tmp_path_factory.mktemp("tasks")
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    commands = {
        "write": [str(write_text(folder)), "--task", "write"],
        "fill": [str(write_text(folder)), "--task", "fill"],
        "classify": [str(write_labels(folder)), "--task", "classify"],
        "words": [str(write_words(folder)), "--task", "classify", "--data.carrier", "word"],
    }
    found = {}
    for name, command in commands.items():
        with redirect_stdout(io.StringIO()) as printed:
            assert main(["train", *command, "-o", str(folder / name), *BRIEF]) == 0
        found[name] = (str(folder / name), printed.getvalue())
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])
    return found


@pytest.fixture
def folder_of(models: dict[str, tuple[str, str]]) -> Callable[[str], str]:
    return lambda name: models[name][0]


Folders = Callable[[str], str]


def good(done: Done) -> str:
    assert (done.code, done.err) == (0, "")
    return done.out


def refused(done: Done, says: str) -> None:
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert done.err.startswith("regard: ")
    assert says in done.err


# Training


@pytest.mark.parametrize(
    ("name", "task", "example", "shown"),
    [
        ("write", "write", '"Once upon a time"', "nats per character"),
        ("fill", "fill", "[MASK]", "of the hidden tokens"),
        ("classify", "classify", "texts.txt", "accuracy"),
        ("words", "classify", "texts.txt", "F1 of spans"),
    ],
)
def test_a_run_tells_its_course(
    name: str, task: str, example: str, shown: str, models: dict[str, tuple[str, str]]
) -> None:
    folder, printed = models[name]
    lines = printed.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("dev at")] == ["dev at step 2", "dev at step 4"]
    assert any(line.startswith("Preset tiny: ") for line in lines)
    assert shown.split()[-1] in printed
    assert f"Use it with: regard {task} {folder} " in lines[-1]
    assert not any(line != line.rstrip() or "\x1b" in line for line in lines)
    assert read_settings(Path(folder)).task == task


def test_the_folder_is_named_after_the_task(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    good(call(capsys, "train", "text.txt", "--task", "write", *BRIEF))
    assert read_settings(tmp_path / "runs" / "write").task == "write"


def test_a_model_is_trained_on(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    flags = ["--training.steps", "2", "--training.device", "cpu", "--training.threads", "1"]
    new = str(tmp_path / "new")
    out = good(call(capsys, "train", str(write_text(tmp_path)), "--from", folder_of("write"), "-o", new, *flags))
    assert "Starting from write." in out.splitlines()
    assert read_settings(tmp_path / "new").task == "write"  # what it is for is what the other one is for
    labels = [str(write_labels(tmp_path)), "--task", "classify", "--from", folder_of("fill")]
    good(call(capsys, "train", *labels, "-o", str(tmp_path / "labels"), *flags))
    assert load_as(Classifier, tmp_path / "labels").labels == ("bad", "good")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "wrote"], "task"),
        (["--task", "embed"], "the task embed cannot be trained"),
        (["--task", "write", "--preset", "big"], "there is no preset big for write"),
        (["--task", "classify"], "labelled texts are read from .tsv, .csv or .jsonl files"),
        (["--task", "fill", "--from", "{write}"], "the task fill cannot start from a model of the task write"),
        (["--from", "{write}", "--preset", "tiny"], "the preset tiny sets the model's shape"),
        (["--from", "{write}", "--model.width", "32"], "model.width comes from the --from model"),
        (["--from", "no/such"], "no/such: no such folder"),
        (["--from", "."], "model.toml"),
    ],
)
def test_what_cannot_be_trained_is_a_line(
    arguments: list[str],
    says: str,
    capsys: Capture,
    folder_of: Folders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    filled = [argument.replace("{write}", folder_of("write")) for argument in arguments]
    refused(call(capsys, "train", str(write_text(tmp_path)), *filled, "-o", "new"), says)
    assert not (tmp_path / "new").exists()


# Writing

PLAIN = ["--max-tokens", "8", "--temperature", "0"]


def test_a_prompt_is_continued(capsys: Capture, folder_of: Folders) -> None:
    model = folder_of("write")
    expected = load_as(Writer, model)("the cat", max_tokens=8, temperature=0.0)
    assert good(call(capsys, "write", model, "the cat", *PLAIN)) == f"the cat{expected}\n"
    assert good(call(capsys, "write", model, *PLAIN, stdin=b"the cat\n")) == f"the cat{expected}\n"
    drawn = load_as(Writer, model)("the cat", max_tokens=8, temperature=1.0, seed=7)
    flags = ["--max-tokens", "8", "--temperature", "1", "--seed", "7"]
    assert good(call(capsys, "write", model, "the cat", *flags)) == f"the cat{drawn}\n"
    stop = drawn[3:5]
    cut = good(call(capsys, "write", model, "the cat", *flags, "--stop", stop, "--stop", "never"))
    assert cut == f"the cat{drawn[: drawn.find(stop)]}\n"


def test_a_continuation_as_json(capsys: Capture, folder_of: Folders) -> None:
    model = folder_of("write")
    found = json.loads(good(call(capsys, "write", model, "the cat", *PLAIN, "--json", "--alternatives", "2")))
    expected = load_as(Writer, model).write(["the cat"], max_tokens=8, temperature=0.0, alternatives=2)[0]
    assert (found["prompt"], found["text"], found["finished"]) == ("the cat", expected.text, expected.finished)
    assert found["tokens"] == list(expected.tokens)
    assert [each["text"] for each in found["alternatives"]] == [each.text for each in expected.alternatives]
    assert len(found["alternatives"]) == 2


def test_alternatives_are_numbered(capsys: Capture, folder_of: Folders) -> None:
    out = good(call(capsys, "write", folder_of("write"), "the cat", *PLAIN, "--alternatives", "2"))
    assert re.findall(r"^--- (\d): log-probability -\d+\.\d\d$", out, re.MULTILINE) == ["1", "2", "3"]


def test_a_text_is_scored(capsys: Capture, folder_of: Folders) -> None:
    model = folder_of("write")
    expected = load_as(Writer, model).score("the cat sat.")
    lines = good(call(capsys, "write", model, "the cat sat.", "--score")).splitlines()
    assert len(lines) == len(expected.tokens) + 1
    for line, token, value in zip(lines, expected.tokens, expected.token_log_probabilities, strict=False):
        assert line == f"{value:9.4f}  {token}"
    assert lines[-1].startswith(f"perplexity {expected.perplexity:.2f} per token ({len(expected.tokens)} tokens), ")
    found = json.loads(good(call(capsys, "write", model, "the cat sat.", "--score", "--json")))
    assert found["perplexity"] == pytest.approx(expected.perplexity)
    assert found["tokens"] == list(expected.tokens)


def test_a_prompt_that_is_too_long_is_told(capsys: Capture, folder_of: Folders) -> None:
    done = call(capsys, "write", folder_of("write"), "the cat sat on a mat. " * 20, *PLAIN)
    assert done.code == 0
    assert re.fullmatch(r"regard: the prompt has \d+ tokens; the model reads only the last 31\n", done.err)


def test_what_cannot_be_written_is_a_line(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    model = folder_of("write")
    refused(call(capsys, "write", folder_of("fill"), "a"), "has the task fill, not write: use regard fill")
    refused(call(capsys, "write", str(tmp_path / "none"), "a"), "no such folder")
    refused(call(capsys, "write", model, "a", "--top-p", "2"), "top_p")
    refused(call(capsys, "write", model, "", "--score"), "at least two tokens")
    refused(call(capsys, "write", model, stdin=b"\xff"), "standard input: not UTF-8")
    refused(call(capsys, "write", model, "\ud800"), "surrogate")


def test_a_process_writes_whatever_its_locale(folder_of: Folders) -> None:
    done = process("write", folder_of("write"), "é 日本", *PLAIN, environment={"PATH": "/usr/bin", "LC_ALL": "C"})
    assert done.code == 0
    assert done.out.startswith("é 日本")


# Filling


def test_gaps_are_filled(capsys: Capture, folder_of: Folders) -> None:
    model = folder_of("fill")
    expected = load_as(Filler, model).fill("the [MASK] sat on [MASK] mat.", 2)
    out = good(call(capsys, "fill", model, "the [MASK] sat on [MASK] mat.", "--count", "2"))
    rows = [f"{f.probability:7.2%}  {f.token:<16}  {f.text}" for gap in expected for f in gap]
    assert out.splitlines() == ["gap 1", *rows[:2], "gap 2", *rows[2:]]
    out = good(call(capsys, "fill", model, "--json", stdin=b"the [MASK]\n[MASK] cat\n"))
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["text"] for each in found] == ["the [MASK]", "[MASK] cat"]
    assert [len(each["gaps"][0]) for each in found] == [5, 5]
    assert found[0]["gaps"][0][0]["token"] == load_as(Filler, model).fill("the [MASK]", 1)[0][0].token


def test_what_cannot_be_filled_is_a_line(capsys: Capture, folder_of: Folders) -> None:
    model = folder_of("fill")
    refused(call(capsys, "fill", model, "no gap"), "there is no gap in the text")
    refused(call(capsys, "fill", model, "[MASK] " * 40), "this model reads at most 32")
    refused(
        call(capsys, "fill", model, "[MASK]", "--count", "0"), "--count: must be a whole number of at least 1, not 0"
    )
    refused(call(capsys, "fill", model, "[MASK] \udcff"), "surrogate")
    refused(call(capsys, "fill", folder_of("write"), "[MASK]"), "has the task write, not fill")


# Labelling


def test_lines_are_labelled(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    model = folder_of("classify")
    texts = ["a good cat", "the bad dog sat", "", "two\ttexts"]
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"{text}\n" for text in texts))
    expected = load_as(Classifier, model).classify([*texts[:3], ("two", "texts")])
    assert good(call(capsys, "classify", model, str(file))) == "".join(f"{each.label}\n" for each in expected)
    scored = good(call(capsys, "classify", model, "--scores", stdin=file.read_bytes()))
    assert scored == "".join(f"{each.label}\t{each.probability:.4f}\n" for each in expected)
    found = [json.loads(line) for line in good(call(capsys, "classify", model, str(file), "--json")).splitlines()]
    assert [each["label"] for each in found] == [each.label for each in expected]
    assert all(sum(each["probabilities"].values()) == pytest.approx(1.0, abs=1e-5) for each in found)


def test_words_are_labelled(capsys: Capture, folder_of: Folders) -> None:
    model = folder_of("words")
    expected = load_as(Classifier, model)("the cat sat").split()
    words = " ".join(f"{w}/{x}" for w, x in zip(["the", "cat", "sat"], expected, strict=True))
    assert good(call(capsys, "classify", model, stdin=b"the  cat sat\n\n")) == f"{words}\n\n"
    (found,) = good(call(capsys, "classify", model, "--json", stdin=b"the cat sat\n")).splitlines()
    assert [(each["word"], each["label"]) for each in json.loads(found)] == list(
        zip(["the", "cat", "sat"], expected, strict=True)
    )


def test_what_is_read_in_part_is_told(capsys: Capture, folder_of: Folders) -> None:
    done = call(capsys, "classify", folder_of("classify"), stdin=b"short\n" + b"the cat sat " * 30 + b"\n")
    assert done.code == 0
    assert done.err == "regard: 1 texts are longer than 32 tokens: only the beginning of each is read\n"


def test_what_cannot_be_labelled_is_a_line(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    model = folder_of("classify")
    refused(call(capsys, "classify", model, str(tmp_path / "none.txt")), "none.txt: cannot be read")
    refused(call(capsys, "classify", model, str(tmp_path)), "cannot be read")
    refused(call(capsys, "classify", model, stdin=b"fine\n\xff\n"), "standard input:2: not UTF-8")
    refused(call(capsys, "classify", folder_of("fill"), stdin=b"a\n"), "has the task fill, not classify")
    refused(call(capsys, "classify", folder_of("words"), stdin=b"a " * 40), "is longer than 32 tokens: split it")


# Embedding

TEXTS = ["the cat sat", "a dog ran far away", "", "mat"]


@pytest.fixture
def texts(tmp_path: Path) -> str:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return str(path)


def test_vectors_go_to_a_file(capsys: Capture, folder_of: Folders, texts: str, tmp_path: Path) -> None:
    model = folder_of("fill")
    expected = load_as(Embedder, model)(TEXTS)
    assert good(call(capsys, "embed", model, texts, "-o", str(tmp_path / "x.npy"))) == ""
    done = call(capsys, "embed", model, texts, "-o", str(tmp_path / "deep/er/x.jsonl"))
    assert done == (0, "", f"regard: created the folder {tmp_path / 'deep/er'}\n")
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected, atol=1e-6)
    written = (tmp_path / "deep/er/x.jsonl").read_text()
    records = [json.loads(line) for line in written.splitlines()]
    assert [record["text"] for record in records] == TEXTS
    np.testing.assert_allclose([record["embedding"] for record in records], expected, atol=1e-6)
    assert good(call(capsys, "embed", model, texts)) == written
    options = ["--pooling", "first", "--normalize", "false"]
    good(call(capsys, "embed", model, texts, "-o", str(tmp_path / "y.npy"), *options))
    other = load_as(Embedder, model)(TEXTS, pooling="first", normalize=False)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), other, atol=1e-6)
    assert not np.allclose(other, expected, atol=1e-2)


def test_no_text_has_no_vectors(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    assert good(call(capsys, "embed", folder_of("fill"), "-o", str(tmp_path / "x.npy"))) == ""
    assert np.load(tmp_path / "x.npy").shape == (0, 16)
    assert good(call(capsys, "embed", folder_of("fill"))) == ""


@pytest.mark.parametrize("pooling", [[], ["--pooling", "first"], ["--pooling", "mean"]])
def test_the_nearest_lines_are_printed(pooling: list[str], capsys: Capture, folder_of: Folders, texts: str) -> None:
    model = folder_of("classify")
    out = good(call(capsys, "embed", model, texts, "--nearest", "mat", "--count", "2", *pooling))
    assert len(out.splitlines()) == 2
    assert out.splitlines()[0] == "1.0000  mat"
    found = good(call(capsys, "embed", model, texts, "--nearest", "a dog ran far away", "--json", *pooling))
    records = [json.loads(line) for line in found.splitlines()]
    assert (records[0]["line"], records[0]["text"]) == (2, TEXTS[1])
    assert records[0]["cosine"] == pytest.approx(1.0, abs=1e-4)
    assert [r["cosine"] for r in records] == sorted((r["cosine"] for r in records), reverse=True)


def test_lines_are_counted_as_in_the_file(capsys: Capture, folder_of: Folders, texts: str) -> None:
    """A blank line is never the nearest, but it is a line."""
    out = good(call(capsys, "embed", folder_of("fill"), texts, "--nearest", "mat", "--json"))
    found = [json.loads(line) for line in out.splitlines()]
    assert {record["line"]: record["text"] for record in found} == {1: TEXTS[0], 2: TEXTS[1], 4: TEXTS[3]}


def test_what_cannot_be_embedded_is_a_line(capsys: Capture, folder_of: Folders, texts: str, tmp_path: Path) -> None:
    model = folder_of("fill")
    refused(call(capsys, "embed", model, texts, "-o", str(tmp_path / "x.txt")), "a .npy or .jsonl file")
    refused(call(capsys, "embed", model, "--nearest", "a"), "there is no text to search")
    refused(
        call(capsys, "embed", model, texts, "--nearest", "a", "--count", "0"),
        "--count: must be a whole number of at least 1, not 0",
    )
    refused(call(capsys, "embed", model, texts, "--pooling", "max"), "--pooling")
    refused(call(capsys, "embed", folder_of("write"), texts), "has the task write, not embed")
    (tmp_path / "file").write_text("")
    refused(call(capsys, "embed", model, texts, "-o", str(tmp_path / "file" / "x.npy")), "cannot be written")
    before = sorted(path.name for path in tmp_path.iterdir())
    bad = call(capsys, "embed", model, "-o", str(tmp_path / "z.npy"), stdin=b"a\n\xff\n")
    refused(bad, "standard input:2: not UTF-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


# Measuring


def test_a_text_is_measured(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    model, file = folder_of("write"), write_text(tmp_path, "test.txt", 30, seed=5)
    expected = load_as(Writer, model).score(file.read_text().strip())
    found = json.loads(good(call(capsys, "evaluate", model, str(file), "--json")))
    assert found["perplexity"] == pytest.approx(expected.perplexity)
    assert found["tokens"] == len(expected.tokens)
    assert found["nats_per_character"] == pytest.approx(expected.surprise / len(file.read_text().strip()))
    assert found["bits_per_character"] == pytest.approx(found["nats_per_character"] / math.log(2))
    assert found["documents"] == 1
    out = good(call(capsys, "evaluate", model, str(file)))
    assert f"perplexity {expected.perplexity:.2f} per token ({len(expected.tokens)} tokens" in out


def test_each_document_is_measured_by_itself(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    model = with_settings(folder_of("write"), tmp_path, 'documents = "file"', 'documents = "line"')
    file = write_text(tmp_path, "test.txt", 10, seed=5)
    writer = load_as(Writer, model)
    expected = sum(writer.score(line).surprise for line in file.read_text().splitlines())
    found = json.loads(good(call(capsys, "evaluate", model, str(file), str(file), "--json")))
    assert found["documents"] == 20
    assert found["nats_per_character"] * found["characters"] == pytest.approx(2 * expected)


@pytest.mark.parametrize("name", ["classify", "words"])
def test_labels_are_measured(name: str, capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    model = folder_of(name)
    classifier = load_as(Classifier, model)
    if name == "words":
        file = write_words(tmp_path, rows=20, seed=5)
        rows = [[line.split() for line in row.split("\n")] for row in file.read_text().strip().split("\n\n")]
        right = [[label for _, label in row] for row in rows]
        labelled = classifier.label_words([[word for word, _ in row] for row in rows])
        answers = [[label.label for label in row] for row in labelled]
    else:
        file = write_labels(tmp_path, rows=20, seed=5)
        lines = [line.split("\t") for line in file.read_text().splitlines()[1:]]
        right = [[label] for label, _ in lines]
        answers = [[found.label] for found in classifier.classify([text for _, text in lines])]
    expected = compare_labels(right, answers, sorted(classifier.labels))
    out = good(call(capsys, "evaluate", model, str(file)))
    assert out.splitlines() == ["20 texts", *expected.lines(), *expected.table()]
    found = json.loads(good(call(capsys, "evaluate", model, str(file), "--json")))
    assert (found["accuracy"], found["f1"]) == pytest.approx((expected.accuracy, expected.f1))
    assert sum(each["count"] for each in found["confusions"]) == found["count"] == expected.count


def test_what_is_left_out_of_a_measure_is_told(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    file = write_labels(tmp_path, rows=5)
    with file.open("a") as table:
        table.write(f"good\t{'long ' * 21_000}\n")
    done = call(capsys, "evaluate", folder_of("classify"), str(file))
    assert done.code == 0
    assert done.out.startswith("5 texts\n")
    assert done.err == f"regard: 1 left out: a side is longer than data.max_characters ({file}:7)\n"


def test_a_label_that_the_model_does_not_know_counts_as_wrong(
    capsys: Capture, folder_of: Folders, tmp_path: Path
) -> None:
    (tmp_path / "new.tsv").write_text("label\ttext\nstrange\tthe cat\n")
    found = json.loads(good(call(capsys, "evaluate", folder_of("classify"), str(tmp_path / "new.tsv"), "--json")))
    assert (found["accuracy"], found["count"]) == (0.0, 1)


def test_what_cannot_be_measured_is_a_line(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "empty.tsv").write_text("")
    refused(call(capsys, "evaluate", folder_of("write")), "pass a model and the files to measure it on")
    refused(call(capsys, "evaluate", folder_of("write"), str(tmp_path / "empty.txt")), "no text to score")
    refused(call(capsys, "evaluate", folder_of("write"), str(tmp_path / "none.txt")), "none.txt: cannot be read")
    refused(call(capsys, "evaluate", folder_of("classify"), str(tmp_path / "empty.tsv")), "the files are empty")
    refused(call(capsys, "evaluate", folder_of("classify"), str(tmp_path / "empty.txt")), "labelled texts are read")
    refused(call(capsys, "evaluate", folder_of("fill"), str(tmp_path / "empty.txt")), "cannot measure a model to fill")


def test_a_damaged_model_is_a_line(capsys: Capture, folder_of: Folders, tmp_path: Path) -> None:
    for name, arguments in (("write", ["a"]), ("fill", ["[MASK]"]), ("classify", []), ("fill", ["--nearest", "a"])):
        copy = Path(shutil.copytree(folder_of(name), tmp_path / name, dirs_exist_ok=True))
        verb = "embed" if "--nearest" in arguments else name
        (copy / "weights.safetensors").write_bytes(b"no weights")
        refused(call(capsys, verb, str(copy), *arguments, stdin=b"a\n"), "weights.safetensors: damaged or unreadable")
