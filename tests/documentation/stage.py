"""A folder with all the files that README and the how-to pages speak of, so that their commands can be typed in it."""

from __future__ import annotations

import gzip
import json
import shutil
from html import escape
from pathlib import Path

import torch

from regard.cli import main
from tests.cli.conftest import write_corpus
from tests.documentation.pages import AT_LEAST_ENDING, ROOT, quickly
from tests.interop.published import save_bert, save_gpt2, save_marian

PAIRS = 160


def set_stage(folder: Path) -> None:
    """Writes corpora, documents and foreign models into a folder, and trains toys; it is the current folder."""
    (folder / "recipes").symlink_to(ROOT / "recipes")
    torch.set_num_threads(1)
    pairs = {name: corpus(folder, name, seed) for seed, name in enumerate(("train", "dev", "test", "a", "law"))}
    corpus(folder, "b", 9)
    (folder / "b.de").rename(folder / "b.fr")
    rows = pairs["train"]
    write(folder / "train.fr", "".join(f"{target} .\n" for _, target in rows))
    for name in ("memory.tsv", "train.tsv"):
        write(folder / name, "".join(f"{source}\t{target}\n" for source, target in rows))
    texts(folder, rows)
    documents(folder, rows)
    foreign(folder)
    models()


def corpus(folder: Path, name: str, seed: int) -> list[tuple[str, str]]:
    files = [Path(file) for file in write_corpus(folder, name, PAIRS, seed + 1)]
    sides = [file.read_text(encoding="utf-8").splitlines() for file in files]
    return list(zip(*sides, strict=True))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def texts(folder: Path, rows: list[tuple[str, str]]) -> None:
    """Text of one language, and text with labels."""
    english, german = ("".join(f"{row[side]}\n" for row in rows) for side in (0, 1))
    for name in ("input.txt", "new.txt", "sentences.txt"):
        write(folder / name, "".join(f"{source}\n" for source, _ in rows[:6]))
    for name in ("book.txt", "text.txt", "test.txt", "letters.txt", "mono.en"):
        write(folder / name, english * (8 if name in ("book.txt", "text.txt", "letters.txt") else 1))
    write(folder / "mono.de", german.replace("1", "7"))
    (folder / "news.de.gz").write_bytes(gzip.compress(german.replace("2", "6").encode()))
    labelled = "label\ttext\n" + "".join(f"{'dog' if 'dog' in source else 'other'}\t{source}\n" for source, _ in rows)
    for name in ("reviews.tsv", "test.tsv"):
        write(folder / name, labelled)
    for name in ("output.de", "other.de"):
        shutil.copy(folder / "test.de", folder / name)
    both = [{"en": source, "pt_BR": target} for source, target in rows]
    write(folder / "all.jsonl", "".join(json.dumps(each) + "\n" for each in both))
    write(folder / "more.tsv", "en\tpt_BR\n" + "".join(f"{source}!\t{target}!\n" for source, target in rows))
    write(folder / "mine.toml", "[model]\nhidden = 32\n")


def documents(folder: Path, rows: list[tuple[str, str]]) -> None:
    """Catalogues, memories and glossaries."""
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: de\\n"\n\n'
    done = "".join(f'msgid "{source}"\nmsgstr "{target}"\n\n' for source, target in rows)
    new = "".join(f'msgid "{source} %s"\nmsgstr ""\n\n' for source, _ in rows[:4])
    for name in ("locale/de/LC_MESSAGES/app.po", "older/old.po", "de.po"):
        write(folder / name, head + done)
    for name in ("app.po", "new/de.po"):
        write(folder / name, head + new)
    head = '<header creationtool="x" segtype="sentence" o-tmf="x" adminlang="en" srclang="en" datatype="plaintext"/>'
    for name, languages in (("memory.tmx", 2), ("customer.tmx", 2), ("european.tmx", 3)):
        units = "\n".join(unit((*row, row[1]), languages) for row in rows)
        write(folder / name, f'<tmx version="1.4">{head}<body>\n{units}\n</body></tmx>\n')
    sources = enumerate(escape(source) for source, _ in rows[:3])
    body = "".join(f'<trans-unit id="{i}"><source>{source}</source></trans-unit>' for i, source in sources)
    about = 'original="x" source-language="en" target-language="de" datatype="plaintext"'
    file = f"<file {about}><body>{body}</body></file>"
    write(folder / "app.xlf", f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{file}</xliff>\n')
    write(folder / "terms.csv", "source,target,forbidden,note\ndog,Hund,,\nfile,Datei,,\n")
    entry = (
        '<termEntry id="1"><langSet xml:lang="en"><tig><term>dog</term></tig></langSet>'
        '<langSet xml:lang="de"><tig><term>Hund</term></tig></langSet></termEntry>'
    )
    write(folder / "terms.tbx", f'<martif type="TBX-Basic" xml:lang="en"><text><body>{entry}</body></text></martif>\n')


def unit(texts: tuple[str, str, str], languages: int) -> str:
    """An entry of a memory."""
    pairs = list(zip(("en", "de", "fr"), texts, strict=True))[:languages]
    return "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{escape(text)}</seg></tuv>' for code, text in pairs) + "</tu>"


def foreign(folder: Path) -> None:
    """Models from elsewhere, under the names of published ones."""
    for name in ("all-MiniLM-L6-v2", "bert-base-uncased"):
        (folder / name).mkdir()
        save_bert(folder / name, "BertModel" if "MiniLM" in name else "BertForMaskedLM")
    (folder / "gpt2").mkdir()
    save_gpt2(folder / "gpt2")
    (folder / "opus-mt-en-de").mkdir()
    save_marian(folder / "opus-mt-en-de")


def models() -> None:
    """The folders that pages take to be there already."""
    for source, target in (("en", "de"), ("de", "en")):
        words = ["train", f"train.{source}", f"train.{target}", "-o", f"runs/{source}-{target}"]
        assert main([*quickly(words), *AT_LEAST_ENDING]) == 0  # their translations are learnt from
    for name in ("big", "old", "demo"):
        shutil.copytree("runs/en-de", f"runs/{name}")
    for words in (["import", "gpt2", "-o", "runs/gpt2"], ["import", "all-MiniLM-L6-v2", "-o", "runs/minilm"]):
        assert main(words) == 0
