"""The model card: what a person should know about a model, in the folder with it."""

from __future__ import annotations

import datetime
from typing import Any

from torch import nn

import regard
from regard.settings import Settings
from regard.text.doctor import Report
from regard.training.events import Finished


def write_card(name: str, settings: Settings, about: dict[str, Any], model: nn.Module, finished: Finished) -> str:
    """The card as Markdown."""
    data, shape = settings.data, settings.model
    today = datetime.datetime.now(datetime.timezone.utc).date()
    count = sum(p.numel() for p in model.parameters())
    report = Report.from_dict(about["report"])
    lines = [
        f"# {name}: {data.source} → {data.target}",
        "",
        f"Trained with Regard {regard.__version__} on {today}.",
        "",
        "## Use",
        "```",
        f"regard translate {name} input.txt",
        "```",
        "## Data",
        f"{about['pairs']:,} pairs from {', '.join(about['files'])}.",
        *(f"- {line}" for line in report.lines()),
        "",
        "## Model",
        f"Preset {about['preset']} ({about['reason']}). {count:,} parameters: {shape.encoder_layers} + "
        f"{shape.decoder_layers} layers, width {shape.width}, feed-forward {shape.hidden}, {shape.heads} heads.",
        "",
        "## Training",
        f"{finished.step:,} steps in {finished.seconds / 60:.1f} minutes; ended because {finished.reason}.",
        "",
        "## Scores",
    ]
    for held_out, scores in finished.scores.items():
        beam = f"beam {settings.decoding.beam}"
        lines += [
            f"{held_out} ({about['held_out'][held_out]:,} pairs, {beam}):",
            *(f"- {line}" for line in scores),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"
