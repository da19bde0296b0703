"""Scores translations by BLEU, chrF and TER, and tests whether one system is significantly better than another.

All scores come from sacrebleu, with signatures, and are comparable with published ones (Post, 2018).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from regard.argument_checks import require, require_texts
from regard.errors import InputError
from regard.tokens.language_directions import CHINESE, JAPANESE, UNSPACED, primary

if TYPE_CHECKING:  # sacrebleu is slow to import, so the functions that need it import it
    from sacrebleu import BLEU
    from sacrebleu.metrics.base import Metric

FEWEST_RESAMPLES = 40
"""With fewer resamples, sacrebleu's confidence interval is the whole range instead of 95 % of it."""

ENVIRONMENT = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Score:
    """The value of a metric on a test set, with the signature that makes it reproducible."""

    name: str
    value: float
    signature: str
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        margin = "" if self.low is None or self.high is None else f" ± {(self.high - self.low) / 2:.1f}"
        return f"{self.name} {self.value:.2f}{margin} ({self.signature})"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The values of a metric for two systems on a test set, and the probability of such a difference by chance."""

    metric: str
    baseline: float
    system: float
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        """The system's score minus the baseline's; for TER, which counts errors, negative is better."""
        return self.system - self.baseline

    @property
    def significant(self) -> bool:
        """True if the probability of such a difference by chance is below 5 %."""
        return self.p_value < 0.05


def score(
    hypotheses: Iterable[str],
    references: Iterable[str],
    *,
    language: str = "",
    lowercase: bool = False,
    tokenize: str | None = None,
    resamples: int = 1000,
    seed: int = 12345,
) -> list[Score]:
    """Computes BLEU, chrF and TER of the hypotheses, with 95 % confidence intervals unless `resamples` is 0.

        >>> for each in regard.score(["Ein Hund läuft."], ["Ein Hund rennt."], language="de", resamples=0):
        ...     print(each.name, each.value, each.signature)

    `language` is the language of the references; it determines BLEU's tokenizer unless `tokenize` names one.
    `lowercase` affects BLEU and chrF; TER always ignores case.
    """
    lines, right = _lines(hypotheses=hypotheses, references=references)
    metrics = _metrics(right, language, lowercase, tokenize)
    scores = []
    if not resamples:
        for name, metric in metrics.items():
            value = float(metric.corpus_score(lines, None).score)  # must precede get_signature, which depends on it
            scores.append(Score(name=name, value=value, signature=str(metric.get_signature())))
        return scores
    for name, signature, [result] in _resample([lines], metrics, resamples, seed):
        value, mean, margin = float(result.score), float(result.mean), float(result.ci)
        scores.append(Score(name=name, value=value, signature=signature, low=mean - margin, high=mean + margin))
    return scores


def compare(
    baseline: Iterable[str],
    system: Iterable[str],
    references: Iterable[str],
    *,
    language: str = "",
    lowercase: bool = False,
    tokenize: str | None = None,
    resamples: int = 1000,
    seed: int = 12345,
) -> list[Comparison]:
    """Compares two systems by BLEU, chrF and TER, tested by paired bootstrap resampling (Koehn, 2004).

        >>> for each in regard.compare(["Ein Hund."], ["Der Hund."], ["Ein Hund."], language="de"):
        ...     print(each.metric, each.difference, each.significant)

    The other arguments are those of `score`.
    """
    before, after, right = _lines(baseline=baseline, system=system, references=references)
    metrics = _metrics(right, language, lowercase, tokenize)
    comparisons = []
    for name, signature, results in _resample([before, after], metrics, resamples, seed):
        first, second = (float(result.score) for result in results)
        p_value = 1.0 if first == second else float(results[1].p_value)  # for equal scores, sacrebleu's is minimal
        comparisons.append(Comparison(metric=name, baseline=first, system=second, p_value=p_value, signature=signature))
    return comparisons


def require_options(
    *,
    language: str = "",
    lowercase: bool = False,
    tokenize: str | None = None,
    resamples: int = 1000,
    pairs: bool = False,
) -> None:
    """Checks the options of `score` (or, with `pairs`, of `compare`) before a model translates a test set."""
    _metrics(["."], language, lowercase, tokenize)
    if resamples or pairs:
        _require_resamples(resamples)


def single_score(
    hypotheses: Sequence[str], references: Sequence[str], metric: Literal["bleu", "chrf"], language: str = ""
) -> float:
    """Returns the same value as `score` for one metric, for early stopping."""
    from sacrebleu import CHRF

    _check_counts(hypotheses=hypotheses, references=references)
    chosen: Metric = _bleu(references, language) if metric == "bleu" else CHRF(references=[references])
    return float(chosen.corpus_score(hypotheses, None).score)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    from sacrebleu import CHRF

    _check_counts(hypotheses=hypotheses, references=references)
    metric = CHRF()
    return [float(metric.sentence_score(h, [r]).score) for h, r in zip(hypotheses, references, strict=True)]


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Returns the percentage of hypotheses that are equal to their reference."""
    _check_counts(hypotheses=hypotheses, references=references)
    same = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return 100 * same / len(references)


def _resample(
    systems: Sequence[Sequence[str]], metrics: Mapping[str, Metric], resamples: int, seed: int
) -> Iterator[tuple[str, str, list[Any]]]:
    """Yields the name, signature and sacrebleu results of each metric; the baseline's result comes first."""
    from sacrebleu.significance import PairedTest

    _require_resamples(resamples)
    require(seed, int, "seed", "a number")
    if seed < 1:  # sacrebleu's paired test interprets 0 as no seed
        raise InputError(f"seed must be at least 1, not {seed}")
    systems_by_name = [(str(index), lines) for index, lines in enumerate(systems)]
    with _quiet_sacrebleu(seed):
        signatures, results = PairedTest(systems_by_name, metrics, None, test_type="bs", n_samples=resamples)()
    for name, (sacrebleu_name, signature) in zip(metrics, signatures.items(), strict=True):  # it calls chrF chrF2
        yield name, str(signature), results[sacrebleu_name]


def _require_resamples(resamples: int) -> None:
    require(resamples, int, "resamples", "a number")
    if resamples < FEWEST_RESAMPLES:
        raise InputError(f"resamples must be at least {FEWEST_RESAMPLES}, not {resamples}")


def _metrics(references: Sequence[str], language: str, lowercase: bool, tokenize: str | None) -> dict[str, Metric]:
    from sacrebleu import CHRF, TER

    require(language, str, "language", "a code such as de")
    split = primary(language) in CHINESE | JAPANESE  # otherwise, TER treats a Chinese sentence as a single word
    return {
        "BLEU": _bleu(references, language, lowercase, tokenize),
        "chrF": CHRF(lowercase=lowercase, references=[references]),
        "TER": TER(normalized=split, asian_support=split, references=[references]),
    }


def _bleu(references: Sequence[str], language: str, lowercase: bool = False, tokenize: str | None = None) -> BLEU:
    from sacrebleu import BLEU

    name = _bleu_tokenizer(language) if tokenize is None else tokenize
    if name not in BLEU.TOKENIZERS:
        raise InputError(f"BLEU has no tokenizer {name!r}: choose one of {', '.join(BLEU.TOKENIZERS)}")
    try:  # `force` suppresses the warning on the terminal if many lines look tokenized
        return BLEU(tokenize=name, lowercase=lowercase, force=True, references=[references])
    except (RuntimeError, ImportError, OSError) as error:  # the tokenizer's library or model is missing
        raise InputError(f"BLEU's tokenizer {name} cannot be used: {' '.join(str(error).split())}") from error


def _bleu_tokenizer(language: str) -> str:
    code = primary(language)
    if code in CHINESE:
        return "zh"
    if code in JAPANESE and all(map(find_spec, ("MeCab", "ipadic"))):
        return "ja-mecab"
    return "char" if code in UNSPACED else "13a"


def _lines(**sides: Iterable[str]) -> list[list[str]]:
    """Returns the lines of each side; raises InputError if their numbers of lines differ."""
    lines_by_side = {name: list(require_texts(lines, name)) for name, lines in sides.items()}
    _check_counts(**lines_by_side)
    return list(lines_by_side.values())


def _check_counts(**sides: Sequence[str]) -> None:
    counts = {name: len(lines) for name, lines in sides.items()}
    if 0 in counts.values() or len(set(counts.values())) > 1:
        shown = ", ".join(f"{count} in {name}" for name, count in counts.items())
        raise InputError(f"all sides must have the same number of lines, at least one; there are {shown}")


@contextmanager
def _quiet_sacrebleu(seed: int) -> Iterator[None]:
    """Passes a seed to sacrebleu, which only reads it from the environment, and silences its log messages."""
    import logging  # takes as long to import as the rest of this module, unless sacrebleu has been imported

    logger = logging.getLogger("sacrebleu")
    with ENVIRONMENT:
        level, before = logger.level, os.environ.get("SACREBLEU_SEED")
        logger.setLevel(logging.ERROR)
        os.environ["SACREBLEU_SEED"] = str(seed)
        try:
            yield
        finally:
            logger.setLevel(level)
            del os.environ["SACREBLEU_SEED"]
            if before is not None:
                os.environ["SACREBLEU_SEED"] = before
