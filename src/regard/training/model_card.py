"""The model card: facts about a model for people, in its folder."""

from __future__ import annotations

import datetime
from typing import Any

from torch import nn

import regard
from regard.settings import Settings
from regard.tokens.directions import format_directions, targets_of
from regard.training.events import Finished


def write_card(
    name: str, settings: Settings, about: dict[str, Any], unit: str, model: nn.Module, finished: Finished
) -> str:
    """Returns the card as Markdown."""
    today = datetime.datetime.now(datetime.UTC).date()
    parameters = sum(p.numel() for p in model.parameters())
    lines = [
        f"# {name}: {describe_purpose(settings)}",
        "",
        f"Trained with Regard {regard.__version__} on {today}.",
        "",
        "## Use",
        "```",
        f"regard {settings.task} {name} {example_input(settings)}",
        "```",
        "## Data",
        f"{about['examples']:,} {unit} from {', '.join(about['files'])}.",
        *(f"- {line}" for line in about["corpus"]),
        *(f"- {direction}: {count:,} {unit}" for direction, count in about.get("directions", {}).items()),
        *(f"- {line}" for line in about.get("synthetic", ())),
        *(f"- label {label}: {count:,}" for label, count in sorted(about.get("balance", {}).items())),
        "",
        "## Model",
        f"Preset {about['preset']} ({about['reason']}). {parameters:,} parameters: {settings.shape}.",
        "",
        "## Training",
        f"{finished.step:,} steps in {finished.seconds / 60:.1f} minutes; ended because {finished.reason}.",
        "",
        "## Scores",
    ]
    for held_out, scores in finished.scores.items():
        lines += [f"{held_out} ({about['held_out'][held_out]:,} {unit}):", "```", *scores, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def example_input(settings: Settings) -> str:
    """Returns example arguments for the command that uses a model."""
    texts = {"write": '"Once upon a time"', "fill": '"Paris is the [MASK] of France."'}
    text = texts.get(settings.task, "input.txt")
    return f"{text} --to {settings.data.target}" if len(targets_of(settings.data)) > 1 else text


def describe_purpose(settings: Settings) -> str:
    """Returns the purpose of a model in a few words."""
    purposes = {
        "translate": format_directions(settings.data),
        "write": "continues text",
        "fill": "fills gaps in text",
        "classify": f"labels {settings.data.carrier}s",
        "embed": "turns text into vectors",
    }
    return purposes[settings.task]
