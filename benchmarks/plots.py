"""Draws plots as SVG: lines over two axes, and bars with their names.

The background is transparent, and the colours stand out from white and from black. Text needs more contrast than any
single grey has with both, so its colour follows the colour scheme of the reader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 58, 20, 40, 50
GREY = "#7d838b"
WORDS = "<style>svg{fill:#5b6169}@media(prefers-color-scheme:dark){svg{fill:#a9b0b9}}</style>"
COLOURS = ("#2f81d6", "#d2691e", "#2e9960", "#b457a8", "#a8841a", "#5c7fa3")


@dataclass(frozen=True)
class Line:
    """A named series of points; the colour is a number, so that lines that belong together can share one."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    dashed: bool = False


def draw(
    title: str,
    across: str,
    up: str,
    lines: Sequence[Line],
    level: tuple[str, float] | None = None,
    *,
    logarithmic: str = "",
    corner: str = "lower right",
) -> str:
    """Draws a plot of lines; `level` is a value to compare with, drawn as a horizontal line.

    `logarithmic` names axes, x, y or xy; such an x has a tick at every point. `corner` is the place of the legend.
    """
    points = [point for line in lines for point in line.points]
    heights = [y for _, y in points] + ([level[1]] if level else [])
    x_ticks = sorted({x for x, _ in points}) if "x" in logarithmic else ticks(0.0, max(x for x, _ in points))
    y_ticks = (powers if "y" in logarithmic else ticks)(min(heights), max(heights))
    frame = Frame(x_ticks[0], x_ticks[-1], y_ticks[0], y_ticks[-1], logarithmic)
    parts = [
        *opening(title, HEIGHT, LEFT),
        *(f'<path d="M{LEFT} {frame.y(y):.1f}H{WIDTH - RIGHT}" {stroke(GREY, 1)} opacity="0.25"/>' for y in y_ticks),
        *(text(LEFT - 8, frame.y(y) + 4, f"{y:g}", anchor="end") for y in y_ticks),
        *(text(frame.x(x), HEIGHT - BOTTOM + 19, f"{x:g}", anchor="middle") for x in x_ticks),
        f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" {stroke(GREY, 1)}/>',
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, across, anchor="middle"),
        f'<g transform="translate(15 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">{text(0, 0, up, anchor="middle")}</g>',
    ]
    if level:
        height = frame.y(level[1])
        parts.append(f'<path d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}" {stroke(GREY, 1.5)}/>')
        parts.append(text(LEFT + 6, height - 6 if height > TOP + 16 else height + 17, level[0]))
    for line in lines:
        parts += series(line, frame)
    return "\n".join([*parts, *legend(lines, corner), "</svg>"]) + "\n"


def opening(title: str, height: float, left: float) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="13" fill="{GREY}">',
        WORDS,
        f"<title>{escape(title)}</title>",
        text(left, 22, title, size=15),
    ]


@dataclass(frozen=True)
class Frame:
    """The values at the edges of the plot, and the axes that are logarithmic."""

    left: float
    right: float
    low: float
    high: float
    logarithmic: str = ""

    def x(self, value: float) -> float:
        return LEFT + self.share(value, self.left, self.right, "x") * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.share(value, self.low, self.high, "y") * (HEIGHT - TOP - BOTTOM)

    def share(self, value: float, first: float, last: float, axis: str) -> float:
        """Returns the position of a value between two others, from 0 to 1."""
        if axis in self.logarithmic:
            value, first, last = (math.log(each) for each in (value, first, last))
        return (value - first) / (last - first)


def powers(low: float, high: float) -> list[float]:
    """Returns powers of ten from at most `low` to at least `high`, with larger steps for a wide range."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    step = max(1, math.ceil((last - first) / 6))
    return [10.0**number for number in range(first, max(last, first + 1) + step, step)]


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Returns evenly spaced round numbers from at most `low` to at least `high`."""
    rough = max(high - low, 1e-6) / about
    unit = 10.0 ** math.floor(math.log10(rough))
    step = unit * next(factor for factor in (1, 2, 5, 10) if factor * unit >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def series(line: Line, frame: Frame) -> list[str]:
    colour = COLOURS[line.colour % len(COLOURS)]
    places = [(frame.x(x), frame.y(y)) for x, y in line.points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
    return [f'<path d="{path}" {stroke(colour, 2, line.dashed)}/>', *([] if line.dashed else dots)]


def legend(lines: Sequence[Line], corner: str = "lower right") -> list[str]:
    """Draws the names of the lines into a corner."""
    parts = []
    top = HEIGHT - BOTTOM - 16 - 19 * (len(lines) - 1) if corner.startswith("lower") else TOP + 16
    x, side, anchor = (LEFT + 14, 34, "start") if corner.endswith("left") else (WIDTH - RIGHT - 38, -8, "end")
    for number, line in enumerate(lines):
        y = top + 19 * number
        parts.append(f'<path d="M{x} {y - 4}h26" {stroke(COLOURS[line.colour % len(COLOURS)], 2, line.dashed)}/>')
        parts.append(text(x + side, y, line.label, anchor=anchor))
    return parts


def stroke(colour: str, width: float, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="3 4"' if dashed else ""
    return f'fill="none" stroke="{colour}" stroke-width="{width:g}"{dash}'


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'


# Bars

NAMES, BAR, GAP = 230, 20, 34  # room for the names on the left, height of a bar with its space, of a group's title


@dataclass(frozen=True)
class Bars:
    """A titled group of named values."""

    title: str
    values: Sequence[tuple[str, float]]
    colour: int = 0
    ours: str = ""  # how the names of the bars begin that stand out; the others are paler


def draw_bars(title: str, across: str, groups: Sequence[Bars], longest: float | None = None) -> str:
    """Draws groups of horizontal bars; a bar of full length has the value `longest`, or the largest of its group."""
    height = TOP + BOTTOM + sum(GAP + BAR * len(group.values) for group in groups)
    left = max([NAMES, *(16 + 7 * len(name) for group in groups for name, _ in group.values)])
    parts, y = opening(title, height, 12), float(TOP)
    for group in groups:
        most, colour = longest or max(value for _, value in group.values), COLOURS[group.colour % len(COLOURS)]
        parts.append(text(12, y + 20, group.title))
        y += GAP
        for name, value in group.values:
            length = max(1.0, value / most * (WIDTH - left - RIGHT - 60))
            pale = "" if name.startswith(group.ours) else ' opacity="0.5"'
            parts.append(text(left - 8, y + 12, name, anchor="end"))
            parts.append(
                f'<rect x="{left}" y="{y:.1f}" width="{length:.1f}" height="{BAR - 6}" fill="{colour}"{pale}/>'
            )
            parts.append(text(left + length + 6, y + 12, short(value)))
            y += BAR
    parts.append(text((left + WIDTH - RIGHT) / 2, height - 16, across, anchor="middle"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
