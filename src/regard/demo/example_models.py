"""The models that come with Regard: what each is, its folder, its example texts, and what its page shows first."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from regard.demo import GLASS
from regard.demo.chinese_sentences import CHINESE_EXAMPLES
from regard.demo.sentence_generator import EXAMPLES

FOLDER = Path(__file__).with_name("example_models")


@dataclass(frozen=True)
class ExampleModel:
    """A model in the package. `start` has the selection of its page: view, layer, head, tokens."""

    name: str
    about: str
    folder: Path
    examples: tuple[str, ...]
    start: dict[str, str | int] = field(default_factory=dict)


IT: dict[str, str | int] = {
    "view": "head",
    "stack": "encoder",
    "kind": "self_attention",
    "layer": 1,
    "head": 1,
    "q": 9,
    "t": 13,
}
"""The head that finds the noun, at “it” in the first of the EXAMPLES."""
GAPS = (
    "The animal didn't [MASK] the street because it was too tired.",
    "The animal didn't cross the street because it was too [MASK].",
    "I love the [MASK] garden.",
)
PROMPTS = ("The animal didn't cross the", "The animal didn't cross the street because", "My sister")

EXAMPLE_MODELS = {
    each.name: each
    for each in (
        ExampleModel("pronouns", "English → French, finds what “it” is", FOLDER / "pronouns", EXAMPLES, IT),
        ExampleModel("chinese", "中文 → English", FOLDER / "chinese", tuple(CHINESE_EXAMPLES)),
        ExampleModel("gaps", "BERT, fills gaps", FOLDER / "gaps", GAPS),
        ExampleModel("writer", "GPT, continues a sentence", FOLDER / "writer", PROMPTS),
        ExampleModel("glass", "16 numbers a word, all on the screen", GLASS, EXAMPLES[:2]),
    )
}
"""By name; `regard look` opens the first one if no model is named, and offers the others."""
