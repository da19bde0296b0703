"""Size of the package, and the time of its tests: `python benchmarks/package.py --tests`.

Builds the wheel of the last commit, in a folder of its own and with the installed libraries, and weighs it; counts
lines; with `--tests` it also runs the tests as `make quick` does.
"""

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

from benchmarks import program, records, tables
from benchmarks.program import ROOT

COUNTED = {
    "src/regard, Python": ("src/regard/", (".py",)),
    "src/regard, C++": ("src/regard/", (".cpp", ".h")),
    "src/regard, pages": ("src/regard/", (".js", ".css", ".html")),
    "tests": ("tests/", (".py",)),
    "benchmarks": ("benchmarks/", (".py",)),
    "documentation": ("docs/", (".md",)),
}
STRIPPED = "the native engine without debug symbols, which is not what is built"


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("--tests", action="store_true", help="run the tests, which takes minutes")
    options = parser.parse_args()
    found = [tables.build("Wheel", weigh()), tables.build("Lines", count_lines())]
    found += [tables.build("Tests", [run_tests()])] if options.tests else []
    records.publish(options.keep, "package", found)


def weigh() -> list[tables.Row]:
    """Returns the size of the wheel and of its largest parts, compressed and unpacked."""
    with tempfile.TemporaryDirectory() as name:
        folder, source = Path(name), Path(name) / "source"
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        source.mkdir()
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*build, "-w", str(folder), str(source)], check=True)
        (wheel,) = folder.glob("*.whl")
        sizes = stripped_size(wheel, folder)
        for each in zipfile.ZipFile(wheel).infolist():
            total = sizes.setdefault(part_of(each.filename), [0, 0])
            total[0] += each.compress_size
            total[1] += each.file_size
        rows: list[tables.Row] = [{"part": "the wheel", "KB": round(wheel.stat().st_size / 1000)}]
    largest = sorted(sizes.items(), key=lambda item: -item[1][0])[:7]
    return rows + [{"part": what, "KB": round(a / 1000), "unpacked, KB": round(b / 1000)} for what, (a, b) in largest]


def stripped_size(wheel: Path, folder: Path) -> dict[str, list[int]]:
    """Returns the size of the compiled engine without its symbols, if binutils are installed."""
    with zipfile.ZipFile(wheel) as archive:
        name = next((name for name in archive.namelist() if "/native/" in name and name.endswith(".so")), "")
        if not name or shutil.which("strip") is None:
            return {}
        library = Path(archive.extract(name, folder / "unpacked"))
    subprocess.run(["strip", "--strip-all", str(library)], check=True)
    content = library.read_bytes()
    return {STRIPPED: [len(zlib.compress(content, 9)), len(content)]}


def part_of(name: str) -> str:
    """regard/decoding/native/core.so -> the native engine, compiled; else the package that a file is in."""
    if name.endswith(".so"):
        return "the native engine, compiled"
    return "/".join(name.split("/")[:2]) if name.count("/") > 1 else "regard/*.py and metadata"


def count_lines() -> list[tables.Row]:
    """Counts the lines of Python, C++ and of the pages, in the files that git lists."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    rows = []
    for what, (begin, ends) in COUNTED.items():
        files = [ROOT / path for path in listed if path.startswith(begin) and path.endswith(ends)]
        rows.append({"what": what, "files": len(files), "lines": sum(len(p.read_bytes().splitlines()) for p in files)})
    return rows


def run_tests() -> tables.Row:
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not slow"]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
    found, seconds = re.search(r"(\d+) passed", output), round(time.monotonic() - began)
    return {"what": "without the slow ones, two at a time", "passed": int(found[1]) if found else 0, "seconds": seconds}


if __name__ == "__main__":
    main()
