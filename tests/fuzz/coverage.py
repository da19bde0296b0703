"""Fuzzing with coverage (libFuzzer by atheris): inputs that reach new lines of Regard are damaged further.

python -m tests.fuzz.coverage settings --seconds 3600    (make fuzz COVERAGE=settings)
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

GROUPS = {  # of the names in tests.fuzz.__main__.all_names
    "settings": ("model.toml", "manifest.json", "confidence.json"),
    "tokenizers": ("tokenizer.json", ".tokenizer.json", ".spm"),
    "importers": ("config.json", "weights.safetensors", "shortlist.safetensors", "special_tokens_map.json"),
    "documents": (),
}
CORPUS = Path(__file__).parent / "corpus"
INSTRUMENTED = ["regard", "json", "tomllib", "csv", "gzip"]
SECONDS = 60
"""For one input, on a machine with other work; `tests.fuzz` counts seconds of computing."""


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.__main__ import all_names, examine, folder_in_memory, random_input, sample
        from tests.fuzz.documents import DOCUMENTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--inputs", type=int, default=-1)
    parser.add_argument("--corpus", type=Path, help="a folder in which inputs with new coverage are kept")
    arguments = parser.parse_args()
    group = arguments.group
    names = [name for name in all_names() if name.endswith(GROUPS[group] or tuple(DOCUMENTS))]
    names = names if group == "documents" else [name for name in names if name not in DOCUMENTS]
    outcomes: Counter[str] = Counter()

    def choose(data: bytes) -> tuple[str, bytes]:
        """The first byte of an input chooses the file."""
        return names[data[0] % len(names)] if data else names[0], data[1:]

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        name, content = choose(data)
        match random.randrange(8):
            case 0:
                return bytes(atheris.Mutate(data, most))
            case 1:
                number = random.randrange(len(names))
                return bytes([number]) + random_input(names[number], random)[: most - 1]
        return data[:1] + random_input(name, random, content)[: most - 1]

    with folder_in_memory() as folder, tempfile.TemporaryDirectory() as seeds:
        for number, name in enumerate(names):
            contents = [sample(name), *(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))]
            for i, content in enumerate(contents):
                (Path(seeds) / f"{number}-{i}").write_bytes(bytes([number]) + content)
            examine(folder, name, sample(name))  # imports what is imported late, outside of the time limit

        def examine_one(data: bytes) -> None:
            name, content = choose(data)
            outcomes[examine(folder, name, content)] += 1
            if outcomes.total() % 10_000 == 0:
                counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items()))
                print(f"{outcomes.total():,} inputs: {counts}", file=sys.stderr, flush=True)

        kept = arguments.corpus or Path(seeds)
        kept.mkdir(parents=True, exist_ok=True)
        options = [f"-max_total_time={arguments.seconds}", f"-runs={arguments.inputs}", f"-timeout={SECONDS}"]
        options += ["-max_len=20000", "-rss_limit_mb=3000", "-print_final_stats=1", str(kept), seeds]
        atheris.Setup([sys.argv[0], *options], examine_one, custom_mutator=mutate)
        os.environ.setdefault("RUST_BACKTRACE", "0")
        atheris.Fuzz()


if __name__ == "__main__":
    main()
