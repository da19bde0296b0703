"""The figures of each claim as plots."""

from __future__ import annotations

from benchmarks.experiments.log import Figures
from benchmarks.plots import Bars, Line, draw, draw_bars

Pictures = dict[str, str]
"""By the end of their name, as SVG; the only one of a claim has none."""

COLOUR = {"Transformer": 0, "LSTM, attention": 1, "GRU, attention": 2, "LSTM": 1, "GRU": 2}


def by_model(figures: Figures, across: str, values: str, unit: float = 1) -> list[Line]:
    """A line for each kind of model; those without attention are dashed."""
    return [
        Line(
            name,
            [(place, value / unit) for place, value in zip(figures[across], found[values], strict=True)],
            COLOUR[name],
            dashed=name in ("LSTM", "GRU"),
        )
        for name, found in figures["models"].items()
    ]


def draw_speed(figures: Figures) -> Pictures:
    titles = {"one": "one text at a time", "batch": f"batches of {figures['batch']:,} tokens"}
    words = ("tokens of source and of target (logarithmic)", "thousand tokens a second (logarithmic)")
    corners = {"one": "upper left", "batch": "lower left"}
    found: Pictures = {}
    for how, title in titles.items():
        lines = by_model(figures, "lengths", how, 1000)
        found[how] = draw(f"Training speed, {title}", *words, lines, logarithmic="xy", corner=corners[how])
    return found


def draw_recall(figures: Figures) -> Pictures:
    title = f"{figures['symbols']} symbols found again after some blanks"
    lines = by_model(figures, "distances", "accuracy")
    return {
        "": draw(
            title, "blanks between (logarithmic)", "share that is right", lines, logarithmic="x", corner="lower left"
        )
    }


def draw_copying(figures: Figures) -> Pictures:
    lines = by_model(figures, "lengths", "accuracy")
    title, across = "Copying texts", "symbols of a text (logarithmic)"
    return {"": draw(title, across, "share that is right", lines, logarithmic="x", corner="lower left")}


def draw_saturation(figures: Figures) -> Pictures:
    lines = [
        Line(label, list(zip(figures["widths"], figures[name]["largest"], strict=True)), colour)
        for colour, (name, label) in enumerate(
            [("divided", "divided by the root of the width"), ("plain", "as they are")]
        )
    ]
    title, across = "The largest of 64 weights", "width of queries and keys (logarithmic)"
    return {"": draw(title, across, "mean of the largest weight", lines, logarithmic="x", corner="upper left")}


def draw_residuals(figures: Figures) -> Pictures:
    named = {name: found for name, found in figures.items() if isinstance(found, dict)}
    lines = [
        Line(name, list(zip(figures["layers"], found["gradient"], strict=True)), colour)
        for colour, (name, found) in enumerate(named.items())
    ]
    title, across = f"Gradients in a new encoder of {figures['depth']} layers", "layers below"
    return {"": draw(title, across, "norm of the gradient (logarithmic)", lines, logarithmic="y")}


def draw_heads(figures: Figures) -> Pictures:
    means = list(zip(figures["heads"], figures["mean"], strict=True))
    runs = [list(zip(figures["heads"], run, strict=True)) for run in zip(*figures["accuracy"], strict=True)]
    lines = [Line("mean", means, 0), *(Line(f"seed {n}", run, 5, dashed=True) for n, run in enumerate(runs, 1))]
    title, across = f"Heads that share a width of {figures['width']}", "heads (logarithmic)"
    return {"": draw(title, across, "share of tokens that is right", lines, logarithmic="x")}


def draw_permutation(figures: Figures) -> Pictures:
    bars = Bars("by the kind of positions", list(figures["apart"].items()))
    title, across = "Permuted text against permuted states", "distance, as a share of the size of the states"
    return {"": draw_bars(title, across, [bars])}


def draw_norms(figures: Figures) -> Pictures:
    lines = [
        Line(
            name,
            [(figures["every"] * (i + 1), loss) for i, loss in enumerate(losses)],
            number // 2,
            dashed=bool(number % 2),
        )
        for number, (name, losses) in enumerate(figures["losses"].items())
    ]
    title = f"{figures['layers']} + {figures['layers']} layers, norm after the sum or before the sublayer"
    return {"": draw(title, "updates", "loss, nats a token", lines, corner="upper right")}


def draw_contexts(figures: Figures) -> Pictures:
    groups = [
        Bars(f"from the vector of {name}", list(zip(figures["levels"], found["guessed"], strict=True)), colour)
        for colour, (name, found) in enumerate(figures["words"].items())
    ]
    title, across = "Is it il or elle?", "share that a linear map tells right; one half is chance"
    return {"": draw_bars(title, across, groups, longest=1.0)}


def draw_cost(figures: Figures) -> Pictures:
    lengths, (constant, linear, square) = figures["lengths"], figures["fit"]
    fitted = [(n, constant + linear * n + square * n * n) for n in lengths]
    lines = [
        Line("attention", list(zip(lengths, figures["attention"], strict=True)), 0),
        Line("its fit", fitted, 0, dashed=True),
        Line("feed-forward", list(zip(lengths, figures["feed-forward"], strict=True)), 1),
    ]
    title, across = "The time of attention", "tokens (logarithmic)"
    return {"": draw(title, across, "milliseconds (logarithmic)", lines, logarithmic="xy")}
