"""Draws the SVG files of rendered pages; their text is readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from torch import Tensor

CELL, ROOM, HEAD = 26, 78, 74
BLUE, ORANGE = "#2f81d6", "#d2691e"
COLOURS = "<style>svg{color:#3b4148}@media(prefers-color-scheme:dark){svg{color:#c9d0d8}}</style>"

Labels = Sequence[str]


def heatmap(matrix: Tensor, rows: Labels, columns: Labels, caption: str, *, numbers: bool = False) -> str:
    """Draws [T, S] as coloured squares: blue above zero, orange below, white at zero; minus infinity is a cross."""
    finite = matrix[matrix.isfinite()].abs()
    most = float(finite.max()) if len(finite) else 1.0
    parts = [
        *(label(ROOM - 6, HEAD + CELL * (i + 0.65), text, "end") for i, text in enumerate(rows)),
        *(slanted(ROOM + CELL * (j + 0.6), HEAD - 6, text) for j, text in enumerate(columns)),
    ]
    for i, row in enumerate(matrix.tolist()):
        for j, value in enumerate(row):
            parts += square(ROOM + CELL * j, HEAD + CELL * i, value, most, numbers=numbers)
    return framed(parts, ROOM + CELL * len(columns) + 44, HEAD + CELL * len(rows) + 4, caption)


def square(x: float, y: float, value: float, most: float, *, numbers: bool) -> list[str]:
    if value == -float("inf"):
        return [
            f'<path d="M{x + 8} {y + 8}l9 9m0 -9l-9 9" stroke="currentColor" stroke-opacity="0.35" stroke-width="1.5"/>'
        ]
    tone, strength = (BLUE if value >= 0 else ORANGE), abs(value) / most if most else 0.0
    parts = [
        f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" fill="{tone}" fill-opacity="{strength:.3f}" '
        f'stroke="currentColor" stroke-opacity="0.12"><title>{value:.3f}</title></rect>'
    ]
    if numbers:
        parts.append(label(x + CELL / 2 - 0.5, y + 17, short(value), "middle", 9))
    return parts


def short(value: float) -> str:
    """Formats a number so that it fits into a square."""
    text = f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"
    return text.replace("0.", ".", 1).replace("-0", "0") if abs(value) < 1 else text


def bars(values: Sequence[tuple[str, float]], caption: str, *, most: float | None = None) -> str:
    """Draws named values as horizontal bars with their numbers; those below zero are orange."""
    top = most or max(abs(value) for _, value in values) or 1.0
    room = 12 + 7.2 * max(len(name) for name, _ in values)
    parts = []
    for i, (name, value) in enumerate(values):
        y, length = 6 + 22 * i, max(1.0, 300 * abs(value) / top)
        parts.append(label(room - 8, y + 13, name, "end"))
        parts.append(
            f'<rect x="{room:.0f}" y="{y}" width="{length:.1f}" height="16" fill="{BLUE if value >= 0 else ORANGE}"/>'
        )
        parts.append(label(room + length + 6, y + 13, f"{value:.2f}"))
    return framed(parts, room + 370, 10 + 22 * len(values), caption)


def label(x: float, y: float, text: str, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="currentColor">'
        f"{escape(text)}</text>"
    )


def slanted(x: float, y: float, text: str) -> str:
    return f'<g transform="translate({x:.1f} {y:.1f}) rotate(-50)">{label(0, 0, text)}</g>'


def framed(parts: Sequence[str], width: float, height: float, caption: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(caption)}" font-family="system-ui, sans-serif">'
        f"{COLOURS}{''.join(parts)}</svg>"
    )
