"""How large the package is, and how long its tests take: `python benchmarks/package.py --tests`.

Builds the wheel of what is committed, in a folder of its own and with the libraries that are installed, and weighs it;
with `--tests` it runs the tests as `make quick` does. Lines are counted, too.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import records

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true", help="run the tests, which takes minutes")
    records.add_keep(parser)
    options = parser.parse_args()
    tables = [records.table("Wheel", [*weigh()]), records.table("Lines", [*lines()])]
    if options.tests:
        tables.append(records.table("Tests", [run_tests()]))
    for table in tables:
        for row in table["rows"]:
            print("; ".join(f"{name}: {value}" for name, value in row.items()))
    if options.keep:
        records.keep("package", tables)


def weigh() -> list[records.Row]:
    """The wheel, and the largest parts of it, as they lie in it and unpacked."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        (folder / "source").mkdir()
        subprocess.run(["tar", "-x", "-C", str(folder / "source")], input=archive, check=True)
        build = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(folder),
        ]
        subprocess.run([*build, str(folder / "source")], check=True)
        (wheel,) = folder.glob("*.whl")
        found: dict[str, list[int]] = stripped(wheel, folder)
        for each in zipfile.ZipFile(wheel).infolist():
            total = found.setdefault(part(each.filename), [0, 0])
            total[0] += each.compress_size
            total[1] += each.file_size
        rows = [{"part": "the wheel", "KB": round(wheel.stat().st_size / 1000)}]
    largest = sorted(found.items(), key=lambda item: -item[1][0])[:7]
    return rows + [
        {"part": what, "KB": round(sizes[0] / 1000), "unpacked, KB": round(sizes[1] / 1000)} for what, sizes in largest
    ]


def stripped(wheel: Path, folder: Path) -> dict[str, list[int]]:
    """What the compiled engine would weigh without its symbols, where binutils are at hand."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")] or [""]
        if not name or shutil.which("strip") is None:
            return {}
        library = Path(archive.extract(name, folder / "unpacked"))
    subprocess.run(["strip", "--strip-all", str(library)], check=True)
    content = library.read_bytes()
    return {
        "the native engine without debug symbols, which is not what is built": [
            len(zlib.compress(content, 9)),
            len(content),
        ]
    }


def part(name: str) -> str:
    """regard/decoding/native/core.so -> the native engine, compiled; else the package that a file is in."""
    if name.endswith(".so"):
        return "the native engine, compiled"
    return "/".join(name.split("/")[:2]) if name.count("/") > 1 else "regard/*.py and metadata"


def lines() -> list[records.Row]:
    """Lines of Python, C++ and of the pages, as git lists the files."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    kinds = {
        "src/regard, Python": ("src/regard/", (".py",)),
        "src/regard, C++": ("src/regard/", (".cpp", ".h")),
        "src/regard, pages": ("src/regard/", (".js", ".css", ".html")),
        "tests": ("tests/", (".py",)),
        "benchmarks": ("benchmarks/", (".py",)),
        "documentation": ("docs/", (".md",)),
    }
    rows = []
    for what, (begin, ends) in kinds.items():
        files = [ROOT / path for path in listed if path.startswith(begin) and path.endswith(ends)]
        rows.append({"what": what, "files": len(files), "lines": sum(len(p.read_bytes().splitlines()) for p in files)})
    return rows


def run_tests() -> records.Row:
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not slow"]
    told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
    found = re.search(r"(\d+) passed", told)
    seconds = round(time.monotonic() - began)
    return {"what": "without the slow ones, two at a time", "passed": int(found[1]) if found else 0, "seconds": seconds}


if __name__ == "__main__":
    main()
