"""What the figures of a claim say, before it is put into the words of a language: the same for all of them."""

from __future__ import annotations

from benchmarks.experiments.log import Figures

PILOT_LOG = "log.md#recurrent-networks-beside-the-transformer"
PILOT_RECALL = {"updates": 300, "transformer": "81", "to": "86", "attending": "99.6", "most": "100"}
PILOT_COPYING = {"updates": 400, "symbols": 32, "transformer": "38", "attending": "87"}
"""First tries of a Transformer with post-norm and sinusoids beside recurrent networks that attend, in percent."""


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def table(head: list[str], rows: list[list[str]]) -> str:
    """As Markdown."""
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


# Speed


def times(figures: Figures, other: str, how: str, at: int) -> str:
    """How many times as fast the Transformer is."""
    return f"{ratio(figures, other, how, at):.2f}"


def ratio(figures: Figures, other: str, how: str, at: int) -> float:
    return float(figures["models"]["Transformer"][how][at] / figures["models"][other][how][at])


def is_faster(figures: Figures, other: str) -> bool:
    """Whether the Transformer is ahead on long texts, and further than on short ones."""
    return ratio(figures, other, "one", -1) > max(1.0, ratio(figures, other, "one", 0))


# Memory


def lost(figures: Figures) -> dict[str, float]:
    """What each model loses from the shortest distance to the longest that it was trained on."""
    within = figures["distances"].index(figures["longest"])
    return {name: found["accuracy"][0] - found["accuracy"][within] for name, found in figures["models"].items()}


def most_lost_attending(figures: Figures) -> float:
    return max(lost(figures)[name] for name in ("LSTM, attention", "GRU, attention", "Transformer"))


def fades(figures: Figures) -> bool:
    """Whether a recurrent network without attention loses much, and much more than what attends."""
    alone = max(lost(figures)["LSTM"], lost(figures)["GRU"])
    return alone > 0.05 and alone > 2 * most_lost_attending(figures)


def copied(figures: Figures) -> tuple[float, float, float]:
    """Of the longest texts: the better network without attention, the better one with it, the Transformer."""
    last = {name: found["accuracy"][-1] for name, found in figures["models"].items()}
    return max(last["LSTM"], last["GRU"]), max(last["LSTM, attention"], last["GRU, attention"]), last["Transformer"]


def needs_attention(figures: Figures) -> bool:
    without, attending, transformer = copied(figures)
    return min(attending, transformer) > without + 0.05


# Parts


def saturates(figures: Figures) -> bool:
    return bool(figures["plain"]["largest"][-1] > 2 * figures["divided"]["largest"][-1])


def stacks(figures: Figures) -> list[Figures]:
    """Pre-norm, post-norm, without residual sums, without norms too."""
    return [found for found in figures.values() if isinstance(found, dict)]


def kept(stack: Figures) -> str:
    """How much of the gradient at the top arrives at the bottom."""
    return f"{stack['gradient'][0] / stack['gradient'][-1]:.2g}"


def same_after(stack: Figures) -> int | None:
    """The layer after which all positions of a text are one."""
    return next((layer for layer, value in enumerate(stack["alike"]) if value > 0.99), None)


def sums_matter(figures: Figures) -> bool:
    _, post, bare, _ = stacks(figures)
    return float(kept(bare)) < 0.5 * float(kept(post))


def heads_help(figures: Figures) -> bool | None:
    """Whether eight heads beat one; None: on average, but not in every seed."""
    mean = dict(zip(figures["heads"], figures["mean"], strict=True))
    runs = dict(zip(figures["heads"], figures["accuracy"], strict=True))
    if mean[8] > mean[1] and min(runs[8]) > max(runs[1]):
        return True
    return None if mean[8] - mean[1] > 0.005 else False


def positions_apart(figures: Figures) -> list[float]:
    return [value for kind, value in figures["apart"].items() if kind != "none"]


def order_is_lost(figures: Figures) -> bool:
    return bool(figures["apart"]["none"] < 1e-4 < min(positions_apart(figures)))


def pre_norm_is_ahead(figures: Figures) -> bool:
    losses = figures["losses"]
    return bool(losses["pre-norm, no warm-up"][-1] < losses["post-norm, no warm-up"][-1] - 0.05)


def warmup_helps(figures: Figures) -> bool:
    losses = figures["losses"]
    return bool(losses["post-norm"][-1] < losses["post-norm, no warm-up"][-1] - 0.05)


def state_knows_more(figures: Figures) -> bool:
    guessed = figures["words"]["it"]["guessed"]
    return bool(guessed[-1] > guessed[0] + 0.1)


def is_quadratic(figures: Figures) -> bool:
    return bool(figures["exponent"] > 1.6)


def crossing(figures: Figures) -> int | None:
    """The length from which attention costs more than the feed-forward layer, if one was measured."""
    costs = zip(figures["lengths"], figures["attention"], figures["feed-forward"], strict=True)
    return next((length for length, attention, other in costs if attention > other), None)
