"""Measures claims about the Transformer: writes figures to docs/claims/, plots to docs/images/, and claims.md in docs/
and docs/zh/.

python benchmarks/claims.py                   measures all claims in some minutes of one core, and writes the pages
python benchmarks/claims.py --only recall     measures one claim
python benchmarks/claims.py --report-only     only writes the pages and the plots, from the stored figures
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks.experiments.claim_records import write_record
from benchmarks.experiments.claims_page import CLAIMS, write_pages

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        action="append",
        choices=[claim.name for claim in CLAIMS],
        help="measure this claim only (may be repeated)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and texts (1)")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of claims.md, zh/, claims/ and images/ (docs)")
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    for claim in CLAIMS:
        if not arguments.report_only and (arguments.only is None or claim.name in arguments.only):
            began = time.process_time()
            figures = claim.measure(arguments.seed)
            seconds = time.process_time() - began
            write_record(arguments.docs / "claims", claim.name, arguments.seed, seconds, figures)
            print(f"{claim.name}: {seconds:.0f} s", flush=True)
    print(*write_pages(arguments.docs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
