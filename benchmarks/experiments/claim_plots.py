"""Draws the figures of each claim as SVG, by the end of the picture's name, which is empty where there is only one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.experiments.claim_records import Figures
from benchmarks.plots import Bars, Line, draw, draw_bars

Pictures = dict[str, str]

COLOUR = {"Transformer": 0, "LSTM, attention": 1, "GRU, attention": 2, "LSTM": 1, "GRU": 2}


def points(across: Iterable[float], up: Iterable[float]) -> list[tuple[float, float]]:
    return list(zip(across, up, strict=True))


def lines_by_model(figures: Figures, across: str, values: str, unit: float = 1) -> list[Line]:
    """Returns a line for each kind of model, dashed for those without attention."""
    return [
        Line(
            name,
            points(figures[across], (value / unit for value in each[values])),
            COLOUR[name],
            "attention" not in name and name != "Transformer",
        )
        for name, each in figures["models"].items()
    ]


def draw_speed(figures: Figures) -> Pictures:
    titles = {"one": "one text at a time", "batch": f"batches of {figures['batch']:,} tokens"}
    words = ("tokens of source and of target (logarithmic)", "thousand tokens a second (logarithmic)")
    corners, found = {"one": "upper left", "batch": "lower left"}, Pictures()
    for how, title in titles.items():
        lines = lines_by_model(figures, "lengths", how, 1000)
        found[how] = draw(f"Training speed, {title}", *words, lines, logarithmic="xy", corner=corners[how])
    return found


def draw_accuracy(title: str, across: str, lines: Sequence[Line], corner: str = "lower left") -> Pictures:
    return {"": draw(title, f"{across} (logarithmic)", "share that is right", lines, logarithmic="x", corner=corner)}


def draw_recall(figures: Figures) -> Pictures:
    title = f"{figures['symbols']} symbols found again after some blanks"
    return draw_accuracy(title, "blanks between", lines_by_model(figures, "distances", "accuracy"))


def draw_copying(figures: Figures) -> Pictures:
    return draw_accuracy("Copying texts", "symbols of a text", lines_by_model(figures, "lengths", "accuracy"))


def draw_saturation(figures: Figures) -> Pictures:
    labels = {"divided": "divided by the root of the width", "plain": "as they are"}
    lines = [
        Line(label, points(figures["widths"], figures[name]["largest"]), colour)
        for colour, (name, label) in enumerate(labels.items())
    ]
    title, across = f"The largest of {figures['keys']} weights", "width of queries and keys (logarithmic)"
    return {"": draw(title, across, "mean of the largest weight", lines, logarithmic="x", corner="upper left")}


def draw_residuals(figures: Figures) -> Pictures:
    stacks = {name: each for name, each in figures.items() if isinstance(each, dict)}
    lines = [
        Line(name, points(figures["layers"], each["gradient"]), colour)
        for colour, (name, each) in enumerate(stacks.items())
    ]
    title = f"Gradients in a new encoder of {figures['depth']} layers"
    return {"": draw(title, "layers below", "norm of the gradient (logarithmic)", lines, logarithmic="y")}


def draw_heads(figures: Figures) -> Pictures:
    runs = enumerate(zip(*figures["accuracy"], strict=True), 1)
    lines = [Line("mean", points(figures["heads"], figures["mean"]), 0)]
    lines += [Line(f"seed {number}", points(figures["heads"], run), 5, dashed=True) for number, run in runs]
    title = f"Heads that share a width of {figures['width']}"
    return {"": draw(title, "heads (logarithmic)", "share of tokens that is right", lines, logarithmic="x")}


def draw_permutation(figures: Figures) -> Pictures:
    bars = Bars("by the kind of positions", list(figures["apart"].items()))
    title, across = "Permuted text against permuted states", "distance, as a share of the size of the states"
    return {"": draw_bars(title, across, [bars])}


def draw_norms(figures: Figures) -> Pictures:
    lines = [
        Line(name, [(figures["every"] * i, loss) for i, loss in enumerate(losses, 1)], number // 2, bool(number % 2))
        for number, (name, losses) in enumerate(figures["losses"].items())
    ]
    title = f"{figures['layers']} + {figures['layers']} layers, norm after the sum or before the sublayer"
    return {"": draw(title, "updates", "loss, nats a token", lines, corner="upper right")}


def draw_contexts(figures: Figures) -> Pictures:
    groups = [
        Bars(f"from the vector of {name}", list(zip(figures["levels"], each["guessed"], strict=True)), colour)
        for colour, (name, each) in enumerate(figures["words"].items())
    ]
    title, across = "Is it il or elle?", "share that a linear map guesses right; one half is chance"
    return {"": draw_bars(title, across, groups, longest=1.0)}


def draw_cost(figures: Figures) -> Pictures:
    lengths, (constant, linear, square) = figures["lengths"], figures["fit"]
    fitted = [(n, constant + linear * n + square * n * n) for n in lengths]
    lines = [Line("attention", points(lengths, figures["attention"]), 0), Line("its fit", fitted, 0, dashed=True)]
    lines.append(Line("feed-forward", points(lengths, figures["feed-forward"]), 1))
    title, up = "The time of attention", "milliseconds (logarithmic)"
    return {"": draw(title, "tokens (logarithmic)", up, lines, logarithmic="xy")}
