"""Help that is there at once, and mistakes that cost one line, exit code 2 and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.settings import DecodingSettings, Settings
from regard.settings.option_fields import options
from tests.cli.conftest import TINY, write_corpus
from tests.cli.running import call, process, tree

VERBS = [
    "train",
    "distill",
    "plan",
    "check",
    "translate",
    "write",
    "fill",
    "classify",
    "embed",
    "evaluate",
    "look",
    "publish",
    "serve",
    "import",
    "export",
    "quantize",
    "shortlist",
    "bench",
    "info",
    "verify",
    "demo",
    "completion",
]


# Help


MEASURE = """
import sys, time
from regard.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(code, time.process_time(), "torch" in sys.modules, "numpy" in sys.modules, file=sys.stderr)
"""


def measure(*arguments: str) -> tuple[str, float, list[str]]:
    """The output of a command, the seconds it computed, and whether it loaded torch and numpy."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as it is for a user, nothing is compiled twice
    command = [sys.executable, "-c", MEASURE, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    code, seconds, *loaded = done.stderr.split()
    assert code == "0"
    return done.stdout, float(seconds), loaded


@pytest.mark.parametrize("arguments", [["--help"], [], ["train", "--help"], ["--version"]], ids=" ".join)
def test_help_is_there_at_once(arguments: list[str]) -> None:
    runs = [measure(*arguments) for _ in range(3)]  # the best of three: the first may have to compile
    assert min(seconds for _, seconds, _ in runs) < 0.3
    assert [loaded for *_, loaded in runs] == [["False", "False"]] * 3
    assert runs[0][0]


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call(capsys, "--help")
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line[:4].isspace() and line[4:5].strip()] == VERBS
    assert "first steps:" in lines


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    with pytest.raises(SystemExit) as ended:
        call(capsys, verb, "--help")
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: regard {verb} ")
    assert "-h, --help" in printed


@pytest.mark.parametrize("verb", ["train", ""])
def test_help_is_a_verb_too(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    with pytest.raises(SystemExit):
        call(capsys, "help", *filter(None, [verb]))
    assert capsys.readouterr().out.startswith(f"usage: regard {verb}")


def test_a_text_in_place_of_a_file_gives_advice(capsys: pytest.CaptureFixture[str], model: str) -> None:
    done = call(capsys, "translate", model, "A dog runs.")
    assert (done.code, done.out) == (2, "")
    assert "A dog runs.: cannot be read" in done.err
    assert "pass it on standard input" in done.err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call(capsys, "--version")
    assert capsys.readouterr().out == f"regard {regard.__version__}\n"


def help_words(capsys: pytest.CaptureFixture[str], verb: str) -> str:
    """The help of a verb in one line, however wide the terminal."""
    with pytest.raises(SystemExit):
        call(capsys, verb, "--help")
    return " ".join(capsys.readouterr().out.split())


def has_option(words: str, flag: str, about: str) -> bool:
    """Reports whether a help describes a flag, with a word between them for its value."""
    return re.search(rf"{re.escape(flag)} \S+ {re.escape(' '.join(about.split()))}", words) is not None


def test_every_setting_is_in_the_help_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    words = help_words(capsys, "train")
    missing = [o.path for o in options(Settings) if not has_option(words, f"--{o.path}", o.help)]
    assert missing == ["task", "preset"]  # which have flags with words of their own
    assert "--preset {tiny,small,base,big,modern}" in words
    assert "--task {translate,write,fill,classify}" in words


@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_every_decoding_setting_is_a_short_flag(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    words = help_words(capsys, verb)
    for option in options(DecodingSettings):
        assert has_option(words, f"--{option.path.replace('_', '-')}", option.help)


# Mistakes


@pytest.fixture
def place(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with good files, bad files, a model and damaged models."""
    write_corpus(tmp_path)
    (tmp_path / "short.de").write_text("ein Hund\n")
    (tmp_path / "empty.en").write_bytes(b"")
    (tmp_path / "blank.en").write_text("\n \n")
    (tmp_path / "binary.en").write_bytes(b"a dog\n\x00\x01\x02\xff\n")
    (tmp_path / "latin.de").write_bytes("ein Hund\nhört\n".encode("latin-1"))
    (tmp_path / "two.en").write_text("a dog\nshe\n")
    (tmp_path / "columns.tsv").write_text("a\tb\na\tb\tc\n")
    (tmp_path / "broken.toml").write_text("[model\n")
    (tmp_path / "odd.toml").write_text("[model]\nwidht = 3\n")
    (tmp_path / "long.en").write_text("a dog\n" + "x" * 500 + "\n")
    shutil.copytree(model, tmp_path / "model")
    for name in ("cut", "foreign", "bare", "odd", "trained"):
        shutil.copytree(model, tmp_path / name, ignore=shutil.ignore_patterns("training"))
    cut = tmp_path / "cut" / "weights.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    (tmp_path / "foreign" / "tokenizer.json").write_text('{"version": "1.0"}')
    (tmp_path / "bare" / "weights.safetensors").unlink()
    (tmp_path / "odd" / "model.toml").write_text("[modle]\n")
    (tmp_path / "nothing").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


GOOD = "train.en train.de -o new"
MISTAKES = {
    # the command
    "trian train.en train.de": "unknown verb trian; did you mean regard train?",
    "--verbose": "unknown option --verbose: see regard --help",
    "translate": "the following arguments are required: MODEL: see regard translate --help",
    "translate model train.en more.en": "train.en: Regard cannot write translations back into this format",
    "translate model --beem 4": "unknown option --beem; did you mean --beam?",
    "info": "pass a model folder, or use --system",
    # the corpus
    "train": "pass the corpus to train on",
    "train missing.en train.de -o new": "missing.en: cannot be read (No such file or directory)",
    "train train.en nothing -o new": "nothing: there is no file with a known format",
    "train train.en -o new": "pass the file of the other language too",
    "train train.en train.de train.en -o new": "pass two plain text files",
    "train missing -o new": "missing does not exist; pass two plain text files",
    "train train.en short.de -o new": "train.en has 120 lines but",
    "train empty.en empty.en -o new": "no usable pairs in",
    "train blank.en blank.en -o new": "2 left out: one side or both are empty",
    "train binary.en two.en -o new": "binary.en:2: this looks like a binary file",
    "train two.en latin.de -o new": "latin.de:2: byte 2 of the line (0xF6) is not UTF-8: convert the file",
    "train columns.tsv -o new": "columns.tsv:2: 3 columns instead of two (source, tab, target)",
    f"train {GOOD} --dev missing.en train.de": "missing.en: cannot be read",
    f"train {GOOD} --test train.en short.de": "train.en has 120 lines but",
    # the settings
    f"train {GOOD} --model.widht 32": "unknown setting --model.widht; did you mean --model.width?",
    f"train {GOOD} --model.widht=32": "unknown setting --model.widht; did you mean --model.width?",
    f"train {GOOD} --model.width": "argument --model.width: expected one argument: see regard train --help",
    f"train {GOOD} --model.heads 3": "model.width 512 is not divisible by model.heads 3",
    f"train {GOOD} --model.heads many": "model.heads must be a whole number, not 'many'",
    f"train {GOOD} --model.dropout 1": "model.dropout must be from 0 to below 1, not 1.0",
    f"train {GOOD} --preset huge": "preset must be one of auto, tiny, small, base, big, modern, not 'huge'",
    f"train {GOOD} --settings missing.toml": "missing.toml: cannot be read (No such file or directory)",
    f"train {GOOD} --settings broken.toml": "broken.toml: not valid TOML",
    f"train {GOOD} --settings odd.toml": "unknown setting model.widht; did you mean model.width?",
    f"train {GOOD} --device nonsense": "device nonsense is not available: use auto, cpu, cuda or mps",
    f"train {GOOD} --model.max_length 2": "train: every pair has more tokens than model.max_length = 2",
    # the folder
    "train train.en train.de -o model": "model: already contains a model: start from it with regard train --from model",
    "train train.en train.de -o bare": "bare: already contains a model",
    "train train.en train.de -o two.en": "two.en: is a file, not a folder",
    "train train.en train.de -o two.en/new": "cannot be written (Not a directory)",
    "train missing.en train.de -o model --overwrite": "missing.en: cannot be read",
    "train train.en latin.de -o model --overwrite": "latin.de:2: byte 2",
    "train --resume nowhere": "nowhere: there is no training run to resume",
    "train --resume nothing": "nothing: there is no training run to resume",
    "train --resume trained": "trained: there is no training run to resume",
    "train --resume model train.en train.de": "--resume reads all other settings from FOLDER",
    "train --resume model --dev train.en train.de": "--resume reads all other settings from FOLDER",
    "train --resume model --model.width 32": "model.width cannot be changed when resuming",
    "train --resume model --preset big": "preset cannot be changed when resuming",
    "train --resume model --training.stepps 9": "unknown setting --training.stepps; did you mean --training.steps?",
    # translating
    "translate nowhere": "nowhere: no such folder",
    "translate two.en": "two.en: a file, not a model folder: a text file, not a model",
    "translate nothing": "nothing: not a Regard model (it has no model.toml)",
    "translate cut": "cut/weights.safetensors: damaged or unreadable",
    "translate foreign": "foreign/tokenizer.json: is damaged or was changed",
    "translate bare": "bare: has no weights.safetensors: copy the whole folder again",
    "translate odd": "odd: damaged, or written by another version of Regard: unknown setting modle",
    "translate model missing.en": "missing.en: cannot be read (No such file or directory)",
    "translate model nothing": "nothing: contains no documents",
    "translate model latin.de": "latin.de:2: not UTF-8 (invalid start byte): convert it with iconv",
    "translate model long.en": "too long for this model and cannot be split",
    "translate model two.en -o nothing": "nothing: is a folder: specify a file",
    "translate model two.en --beam 0": "decoding.beam must be at least 1, not 0",
    "translate model two.en --device nonsense": "device nonsense is not available",
    "translate model two.en --stream --json": "--stream prints plain text word by word",
    # evaluating
    "evaluate model": "pass a model and a test set",
    "evaluate nowhere train.en train.de": "nowhere: no such folder",
    "evaluate nothing train.en train.de": "nothing: not a Regard model (it has no model.toml): an empty folder",
    "evaluate model missing.en train.de": "missing.en: cannot be read",
    "evaluate train.en train.de": "train.en: a file, not a model folder",
    "translate two.en model": "two.en: a file, not a model folder",
    "translate model two.en --out x": "unknown option --out; did you mean --output?",
    "export model --to hf -o x": "--to needs huggingface, ctranslate2, onnx or page, not 'hf'",
    "bench model": "regard bench needs serve, not 'model'",
    "serve model --rate -5": "argument --rate: must be a number of at least 0, not -5",
    "evaluate model empty.en empty.en": "empty.en: the test set is empty",
    "evaluate model train.en short.de": "train.en has 120 lines but",
    "evaluate --hypotheses missing.de train.de": "missing.de: cannot be read",
    "evaluate --hypotheses short.de train.de": "short.de: has 1 line, but the test set has 120",
    "evaluate --hypotheses latin.de train.de": "latin.de:2: not UTF-8",
    "evaluate --hypotheses train.de train.de --resamples 3": "resamples must be at least 40, not 3",
    "evaluate --hypotheses train.de train.de --resamples few": "argument --resamples: invalid int value: 'few'",
    "evaluate --hypotheses train.de train.de --tokenize no": "BLEU has no tokenizer 'no'",
    "evaluate --hypotheses train.de train.de --baseline short.de": "short.de: has 1 line, but the test set has 120",
    "evaluate --hypotheses train.de train.de --baseline model": "to compare with a model, pass the sources too",
    # looking
    "info nothing": "nothing: not a Regard model",
    "info odd": "unknown setting modle",
    "info cut": "cut/weights.safetensors: damaged or unreadable",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_costs_one_line_and_nothing_else(capsys: pytest.CaptureFixture[str], place: Path, line: str) -> None:
    before = tree(place)
    done = call(capsys, *line.split())
    assert done.code == 2
    assert done.err.startswith("regard: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    assert MISTAKES[line] in done.err
    assert tree(place) == before


def test_a_mistake_of_a_process(place: Path) -> None:
    done = process("train", "missing.en", "train.de", *TINY)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "Traceback" not in done.err


def test_ctrl_c_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.cli.info.describe_system", interrupted)
    assert call(capsys, "info", "--system") == (130, "", "regard: stopped\n")


def test_folders_made_on_the_way_to_the_output_are_taken_back(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    before = tree(place)
    assert call(capsys, "train", "two.en", "latin.de").code == 2
    assert tree(place) == before


def test_a_translation_that_breaks_off_leaves_no_file(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    before = tree(place)
    assert call(capsys, "translate", "model", "latin.de", "-o", "out.txt").code == 2
    assert tree(place) == before


def test_a_full_disk_behind_the_output_is_a_line_too(model: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no disk that is always full")
    with full.open("w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "regard", "info", model],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "regard: the output: cannot be written (No space left on device)\n"
