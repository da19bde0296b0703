"""Draws conclusions from the figures of each claim; claims.md and claims.zh.md put them into words.

Each function returns the names that its section of the page uses. `holds` says whether the claim holds at this size;
None means on average, but not in every seed.
"""

from __future__ import annotations

from typing import Any

from benchmarks.experiments.claim_records import Figures

Conclusions = dict[str, Any]
ATTENDING = ("LSTM, attention", "GRU, attention", "Transformer")
PILOT = {
    "recall_updates": 300,
    "transformer_recall": "81 to 86",
    "recurrent_recall": "99.6 to 100",
    "copying_updates": 400,
    "symbols": 32,
    "transformer_copied": 38,
    "lstm_copied": 87,
}
"""First trials of a Transformer with post-norm and sinusoids beside recurrent networks with attention, in percent."""


def judge_speed(figures: Figures) -> Conclusions:
    models = figures["models"]

    def ratio(other: str, how: str, at: int) -> float:
        return float(models["Transformer"][how][at] / models[f"{other}, attention"][how][at])

    def is_faster_than(other: str) -> bool:
        """Tells whether the Transformer is ahead on long texts, and further ahead than on short ones."""
        return ratio(other, "one", -1) > max(1.0, ratio(other, "one", 0))

    lstm, gru = is_faster_than("LSTM"), is_faster_than("GRU")
    found = {"faster_than_lstm": lstm, "faster_than_gru": gru, "holds": lstm and gru}
    return found | {"times": lambda other, how, at: f"{ratio(other, how, at):.2f}"}


def judge_recall(figures: Figures) -> Conclusions:
    """Compares what each model loses from the shortest distance to the longest that it was trained on."""
    within = figures["distances"].index(figures["longest"])
    lost = {name: each["accuracy"][0] - each["accuracy"][within] for name, each in figures["models"].items()}
    attending, alone = max(lost[name] for name in ATTENDING), max(lost["LSTM"], lost["GRU"])
    points = {name: f"{100 * value:.1f}" for name, value in lost.items()}
    holds = alone > 0.05 and alone > 2 * attending
    return {"holds": holds, "lost": points, "attention_reaches_far": attending < 0.05}


def judge_copying(figures: Figures) -> Conclusions:
    """Compares the longest texts: the better network without attention, the better one with it, the Transformer."""
    last = {name: each["accuracy"][-1] for name, each in figures["models"].items()}
    without, attending = max(last["LSTM"], last["GRU"]), max(last["LSTM, attention"], last["GRU, attention"])
    found = {"without": without, "attending": attending, "transformer": last["Transformer"]}
    return found | {"holds": min(attending, last["Transformer"]) > without + 0.05}


def judge_saturation(figures: Figures) -> Conclusions:
    return {"holds": figures["plain"]["largest"][-1] > 2 * figures["divided"]["largest"][-1]}


def judge_residuals(figures: Figures) -> Conclusions:
    """Compares stacks with pre-norm, with post-norm, without residual sums, and without norms too."""
    stacks = [each for each in figures.values() if isinstance(each, dict)]
    arrives = [f"{each['gradient'][0] / each['gradient'][-1]:.2g}" for each in stacks]
    alike = [(layer for layer, value in enumerate(each["alike"]) if value > 0.99) for each in stacks]
    holds = float(arrives[2]) < 0.5 * float(arrives[1])
    return {"holds": holds, "arrives": arrives, "same_after": [next(layers, None) for layers in alike]}


def judge_heads(figures: Figures) -> Conclusions:
    mean = dict(zip(figures["heads"], figures["mean"], strict=True))
    runs = dict(zip(figures["heads"], figures["accuracy"], strict=True))
    always = mean[8] > mean[1] and min(runs[8]) > max(runs[1])
    on_average = None if mean[8] - mean[1] > 0.005 else False
    return {"holds": True if always else on_average, "one": mean[1], "eight": mean[8]}


def judge_permutation(figures: Figures) -> Conclusions:
    others = [value for kind, value in figures["apart"].items() if kind != "none"]
    nearest, farthest = min(others), max(others)
    return {"holds": figures["apart"]["none"] < 1e-4 < nearest, "nearest": nearest, "farthest": farthest}


def judge_norms(figures: Figures) -> Conclusions:
    last = {name: losses[-1] for name, losses in figures["losses"].items()}
    post_norm = last["post-norm, no warm-up"] - 0.05
    holds, helps = last["pre-norm, no warm-up"] < post_norm, last["post-norm"] < post_norm
    return {"holds": holds, "warmup_helps": helps, "end": {name: f"{value:.2f}" for name, value in last.items()}}


def judge_contexts(figures: Figures) -> Conclusions:
    guessed = figures["words"]["it"]["guessed"]
    return {"holds": guessed[-1] > guessed[0] + 0.1}


def judge_cost(figures: Figures) -> Conclusions:
    """`crossing` is the first measured length at which attention costs more than the feed-forward layer."""
    costs = zip(figures["lengths"], figures["attention"], figures["feed-forward"], strict=True)
    crossing = next((length for length, attention, other in costs if attention > other), None)
    return {"holds": figures["exponent"] > 1.6, "crossing": crossing}
