"""BLEU, chrF and TER with their signatures, and whether one system is really better than another.

Every number is sacrebleu's own, so that it can be compared with published ones (Post, 2018).
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
from regard.tokens.language_tags import CHINESE, JAPANESE, UNSPACED, primary

if TYPE_CHECKING:  # sacrebleu is slow to import, so the functions that need it import it
    from sacrebleu import BLEU
    from sacrebleu.metrics.base import Metric

# With fewer, sacrebleu's interval is the whole range of the resamples, not 95 % of it.
FEWEST_RESAMPLES = 40


ENVIRONMENT = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric over a test set, and all that is needed to compute it again."""

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
    """One metric of two systems on the same test set, and how easily chance makes them differ as much."""

    metric: str
    baseline: float
    system: float
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        """What the system adds to the baseline; of TER, which counts errors, less is better."""
        return self.system - self.baseline

    @property
    def significant(self) -> bool:
        """Whether chance makes so large a difference in fewer than one of twenty test sets."""
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

    The language is that of the references; it chooses BLEU's tokenizer unless `tokenize` names one.
    `lowercase` is for BLEU and chrF: TER never looks at case.
    """
    lines, right = _lines(hypotheses=hypotheses, references=references)
    metrics = _metrics(right, language, lowercase, tokenize)
    if resamples:
        return [_with_interval(*each) for each in _resample([lines], metrics, resamples, seed)]
    values = {name: float(metric.corpus_score(lines, None).score) for name, metric in metrics.items()}
    return [
        Score(name=name, value=value, signature=str(metrics[name].get_signature())) for name, value in values.items()
    ]


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
    return [_comparison(*each) for each in _resample([before, after], metrics, resamples, seed)]


def require_options(
    *,
    language: str = "",
    lowercase: bool = False,
    tokenize: str | None = None,
    resamples: int = 1000,
    pairs: bool = False,
) -> None:
    """Refuses options that `score`, or with `pairs` `compare`, would refuse: before a model translates a test set."""
    _metrics(["."], language, lowercase, tokenize)
    if resamples or pairs:
        _require_resamples(resamples)


def single_score(
    hypotheses: Sequence[str], references: Sequence[str], metric: Literal["bleu", "chrf"], language: str = ""
) -> float:
    """The number that `score` gives for one metric, without resampling; for early stopping."""
    from sacrebleu import CHRF

    _check_counts(hypotheses=hypotheses, references=references)
    chosen: Metric = _bleu(references, language) if metric == "bleu" else CHRF(references=[references])
    return float(chosen.corpus_score(hypotheses, None).score)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of every sentence by itself."""
    from sacrebleu import CHRF

    _check_counts(hypotheses=hypotheses, references=references)
    metric = CHRF()
    return [float(metric.sentence_score(h, [r]).score) for h, r in zip(hypotheses, references, strict=True)]


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """How many of a hundred hypotheses are their reference, character for character."""
    _check_counts(hypotheses=hypotheses, references=references)
    same = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return 100 * same / len(references)


def _resample(
    systems: Sequence[Sequence[str]], metrics: Mapping[str, Metric], resamples: int, seed: int
) -> Iterator[tuple[str, str, list[Any]]]:
    """For each metric its name, its signature and sacrebleu's result for each system, the baseline first."""
    from sacrebleu.significance import PairedTest

    _require_resamples(resamples)
    require(seed, int, "seed", "a number")
    if seed < 1:  # sacrebleu's paired test takes 0 for no seed at all
        raise InputError(f"the seed of the resamples must be at least 1, not {seed}")
    named = [(str(index), lines) for index, lines in enumerate(systems)]
    with _quiet_sacrebleu(seed):
        signatures, results = PairedTest(named, metrics, None, test_type="bs", n_samples=resamples)()
    for name, (theirs, signature) in zip(metrics, signatures.items(), strict=True):  # their chrF is chrF2
        yield name, str(signature), results[theirs]


def _require_resamples(resamples: int) -> None:
    require(resamples, int, "resamples", "a number")
    if resamples < FEWEST_RESAMPLES:
        raise InputError(f"resamples must be at least {FEWEST_RESAMPLES}, not {resamples}")


def _with_interval(name: str, signature: str, results: list[Any]) -> Score:
    value, mean, margin = float(results[0].score), float(results[0].mean), float(results[0].ci)
    return Score(name=name, value=value, signature=signature, low=mean - margin, high=mean + margin)


def _comparison(metric: str, signature: str, results: list[Any]) -> Comparison:
    baseline, system = (float(result.score) for result in results)
    # Where nothing differs, sacrebleu gives the smallest p there is, as if the difference were certain.
    p_value = 1.0 if baseline == system else float(results[1].p_value)
    return Comparison(metric=metric, baseline=baseline, system=system, p_value=p_value, signature=signature)


def _metrics(references: Sequence[str], language: str, lowercase: bool, tokenize: str | None) -> dict[str, Metric]:
    from sacrebleu import CHRF, TER

    require(language, str, "language", "a code such as de")
    # Else a Chinese sentence is a single word to TER, right or wrong as a whole.
    split = primary(language) in CHINESE | JAPANESE
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
    try:
        # force: no warning on the terminal where many lines look tokenized
        return BLEU(tokenize=name, lowercase=lowercase, force=True, references=[references])
    except (RuntimeError, ImportError, OSError) as error:  # its library or its model is missing
        raise InputError(f"BLEU's tokenizer {name} cannot be used: {' '.join(str(error).split())}") from error


def _bleu_tokenizer(language: str) -> str:
    code = primary(language)
    if code in CHINESE:
        return "zh"
    if code in JAPANESE and all(map(find_spec, ("MeCab", "ipadic"))):
        return "ja-mecab"
    return "char" if code in UNSPACED else "13a"


def _lines(**sides: Iterable[str]) -> list[list[str]]:
    """The lines of each side, as many on each."""
    found = {name: list(require_texts(lines, name)) for name, lines in sides.items()}
    _check_counts(**found)
    return list(found.values())


def _check_counts(**sides: Sequence[str]) -> None:
    counts = {name: len(lines) for name, lines in sides.items()}
    if 0 in counts.values() or len(set(counts.values())) > 1:
        found = ", ".join(f"{count} in {name}" for name, count in counts.items())
        raise InputError(f"scoring needs as many lines on each side, and at least one; there are {found}")


@contextmanager
def _quiet_sacrebleu(seed: int) -> Iterator[None]:
    """Give sacrebleu a seed, which it takes from the environment only, and keep its log off the terminal."""
    import logging  # costs nothing after sacrebleu, but as much as the rest of this module before it

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
