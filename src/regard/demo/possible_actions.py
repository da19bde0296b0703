"""The actions of the demo grammar, with their possible actors, objects and reasons, and the places of things.

A reason refers to the actor or to the object: an animal does not cross the street because *it* is too tired, or
because *it* is too wide. The French pronoun shows which of the two "it" stands for.
"""

from __future__ import annotations

from typing import Literal, get_args

from regard.demo.bilingual_words import Adjectives, Nouns, VerbForms
from regard.demo.grammar_files import GRAMMAR, Entry, load_entries


class Reasons(Entry, frozen=True):
    """Adjectives that give a reason and describe the actor or the object."""

    actor: Adjectives = Adjectives()
    object: Adjectives = Adjectives()


class Action(Entry, frozen=True):
    """A verb with its possible actors and objects, and reasons against it, for it, or that follow from it."""

    verb: VerbForms
    actors: Nouns
    objects: Nouns
    against: Reasons = Reasons()
    favor: Reasons = Reasons()
    after: Reasons = Reasons()
    both_may_fit: bool = False


class Spot(Entry, frozen=True):
    """A preposition with the places that can follow it."""

    english: str
    french: str
    places: Nouns


class PossiblePlaces(Entry, frozen=True):
    """Nouns that can be in the same places."""

    located: Nouns
    at: list[Spot]
    fixed: bool = False


ActionList = Literal["reasoned", "inanimate", "plain", "journey"]
ACTIONS = {kind: load_entries(GRAMMAR / "actions.toml", kind, Action) for kind in get_args(ActionList)}
PLACES = load_entries(GRAMMAR / "locations.toml", "location", PossiblePlaces)
