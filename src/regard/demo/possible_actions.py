"""Who can do what to what in the demonstration grammar, for which reasons, and where things can be.

A reason belongs to the actor or to the object: an animal does not cross the street because *it* is too tired, or
because *it* is too wide. Which of the two "it" is shows in French.
"""

from __future__ import annotations

from regard.demo.bilingual_words import VERBS, Adjective, list_adjectives, list_nouns
from regard.demo.grammar_files import GRAMMAR, load_entries, parse_entries, require_known

_NO_REASONS: dict[str, str] = {}


class Action:
    """A verb with its possible actors and objects, and with adjectives of either that are reasons."""

    def __init__(
        self,
        verb: str,
        actors: str,
        objects: str,
        against: dict[str, str] = _NO_REASONS,
        favor: dict[str, str] = _NO_REASONS,
        after: dict[str, str] = _NO_REASONS,
        both_may_fit: bool = False,
    ) -> None:
        require_known([verb], VERBS, "verb")
        self.verb, self.actors, self.objects = VERBS[verb], list_nouns(actors), list_nouns(objects)
        self.both_may_fit = both_may_fit
        self._reasons: dict[tuple[str, bool], tuple[Adjective, ...]] = {}
        for stance, sides in (("against", against), ("favor", favor), ("after", after)):
            require_known(sides, ("actor", "object"), f"key of {stance}")
            for side, names in sides.items():
                self._reasons[stance, side == "actor"] = list_adjectives(names)

    def reasons(self, stance: str, of_actor: bool) -> tuple[Adjective, ...]:
        """Returns the adjectives "against" doing it, in "favor" of it, or seen "after" it."""
        return self._reasons.get((stance, of_actor), ())


class Spot:
    """A preposition with the places that can follow it."""

    def __init__(self, english: str, french: str, places: str) -> None:
        self.english, self.french, self.places = english, french, list_nouns(places)


class PossiblePlaces:
    """Nouns that can be in the same spots."""

    def __init__(self, located: str, at: list[dict[str, str]], fixed: bool = False) -> None:
        self.nouns, self.fixed = list_nouns(located), fixed
        self.spots = parse_entries("at", at, Spot)


ACTIONS = {
    kind: load_entries(GRAMMAR / "actions.toml", kind, Action) for kind in ("reasoned", "inanimate", "plain", "journey")
}
LOCATIONS = load_entries(GRAMMAR / "locations.toml", "location", PossiblePlaces)
