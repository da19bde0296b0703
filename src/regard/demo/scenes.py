"""What happens in the demonstration grammar: who does what to what, and what speaks for or against it.

A reason belongs to the one who acts or to the thing acted upon: an animal does not cross the street
because *it* is too tired, or because *it* is too wide. Which of the two "it" is shows in French.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.demo.lexicon import NOUNS, VERBS, Adjective, Noun, VerbForms, adjectives as words

Reasons = dict[tuple[str, bool], tuple[Adjective, ...]]


@dataclass(frozen=True, eq=False)
class Scene:
    verb: VerbForms
    subjects: tuple[Noun, ...]
    things: tuple[Noun, ...]
    adjectives: Reasons

    def reasons(self, stance: str, of_subject: bool) -> tuple[Adjective, ...]:
        """What speaks "against" doing it, in "favor" of it, or shows "after" it."""
        return self.adjectives.get((stance, of_subject), ())


@dataclass(frozen=True, eq=False)
class Spot:
    """A preposition with the places where things or beings of one sort can be."""

    english: str
    french: str
    places: tuple[Noun, ...]


def nouns(wanted: str) -> tuple[Noun, ...]:
    """The nouns named, by themselves or by a tag, in one string."""
    names = set(wanted.split())
    return tuple(noun for noun in NOUNS.values() if names & noun.tags)


def _scene(verb: str, subjects: str, things: str, **reasons: str) -> Scene:
    """A scene whose reasons are written "adjectives of the one who acts / adjectives of the thing"."""
    adjectives: Reasons = {}
    for stance, text in reasons.items():
        for half, of_subject in zip(text.split("/"), (True, False), strict=True):
            adjectives[stance, of_subject] = words(half)
    return Scene(VERBS[verb], nouns(subjects), nouns(things), adjectives)


def _spots(*rows: str) -> tuple[Spot, ...]:
    parts = (row.split(" | ") for row in rows)
    return tuple(Spot(english, french, nouns(places)) for english, french, places in parts)


FITTING = _scene(
    "fit in",
    "book lamp clock hat coat computer axe",
    "container",
    against="big / small",
)

DRIVING = _scene(
    "cross",
    "car truck motorcycle",
    "bridge tunnel",
    against="heavy / narrow long dangerous fragile",
)

SCENES = (
    _scene(
        "cross",
        "animal person",
        "street road",
        against="tired sick weak slow afraid shy lazy nervous / wide dangerous noisy dark",
        favor="hungry curious brave thirsty / empty quiet",
        after="tired happy proud / wide empty dangerous",
    ),
    _scene(
        "cross",
        "animal person",
        "river lake",
        against="tired sick weak afraid clumsy young lazy / wide deep cold dangerous",
        favor="brave strong curious hungry / quiet",
        after="tired proud thirsty / cold deep wide",
    ),
    _scene(
        "cross",
        "animal person",
        "bridge tunnel",
        against="tired sick afraid shy lazy nervous / long narrow dark dangerous fragile",
        favor="hungry curious brave / wide empty",
        after="tired happy hungry / long narrow dark",
    ),
    _scene(
        "cross",
        "animal person",
        "forest field park garden",
        against="tired sick weak afraid lazy nervous / large dark dangerous",
        favor="hungry curious brave thirsty / quiet empty",
        after="tired hungry thirsty / large dark quiet",
    ),
    _scene(
        "climb",
        "climber person",
        "mountain wall tower fence",
        against="tired weak sick afraid lazy clumsy young / high dangerous",
        after="tired proud happy hungry / high",
    ),
    _scene(
        "climb up",
        "climber person",
        "tree ladder",
        against="tired weak sick afraid lazy clumsy / tall long fragile broken",
    ),
    _scene(
        "jump over",
        "jumper youth",
        "wall hedge fence",
        against="tired weak slow lazy sick clumsy afraid / high wide",
        after="proud happy tired / high",
    ),
    _scene(
        "open",
        "opener person",
        "door window box suitcase bag",
        against="shy lazy tired weak afraid sick / heavy locked",
        after="happy curious / empty heavy",
    ),
    _scene(
        "carry",
        "strong person",
        "container ladder chair",
        against="tired weak lazy sick clumsy / heavy fragile dirty",
        favor="strong kind brave / light empty clean",
        after="tired proud / heavy empty",
    ),
    _scene(
        "push",
        "strong person",
        "car truck table sofa armchair",
        against="tired weak lazy sick / heavy",
        after="tired proud / heavy",
    ),
    _scene(
        "eat",
        "animal person",
        "food",
        against="sick sad nervous tired shy / hard hot cold salty sweet",
        favor="hungry / delicious fresh hot",
        after="happy thirsty sick / delicious cold sweet salty",
    ),
    _scene(
        "drink",
        "animal person",
        "milk water",
        against="sick nervous tired shy sad / cold hot dirty",
        favor="thirsty hungry / fresh delicious clean",
        after="happy hungry / delicious cold hot",
    ),
    _scene(
        "drink",
        "person",
        "coffee",
        against="sick nervous tired / cold hot sweet",
        favor="tired thirsty / hot delicious",
        after="nervous happy / delicious cold sweet",
    ),
    _scene(
        "sleep in",
        "pet person",
        "bed bedroom house armchair",
        against="hungry nervous thirsty afraid sad / noisy hard narrow",
        favor="tired sick lazy sad / comfortable quiet soft empty",
        after="happy / comfortable noisy hard quiet",
    ),
    _scene(
        "sleep on",
        "pet person",
        "sofa chair",
        against="hungry nervous thirsty afraid / hard dirty fragile",
        favor="tired sick lazy sad / comfortable soft clean",
        after="happy / comfortable hard soft",
    ),
    _scene(
        "enter",
        "animal person",
        "forest tunnel garden park",
        against="shy afraid nervous tired sick / dark noisy dangerous",
        favor="curious hungry thirsty brave / empty quiet",
        after="curious hungry afraid / dark empty quiet",
    ),
    _scene(
        "enter",
        "pet bear monkey goat person",
        "house castle church kitchen",
        against="shy afraid nervous tired sick / dark noisy locked",
        favor="curious hungry thirsty brave / empty quiet",
        after="curious hungry afraid / dark empty quiet",
    ),
    _scene(
        "enter",
        "person",
        "museum hotel school",
        against="shy tired lazy nervous / noisy expensive boring",
        favor="curious tired / modern interesting quiet",
    ),
    _scene(
        "leave",
        "animal person",
        "forest garden park island field",
        against="lazy tired afraid sick shy / quiet",
        favor="curious sad hungry thirsty / noisy dark dangerous",
    ),
    _scene(
        "leave",
        "pet person",
        "house village castle city",
        against="lazy tired afraid sick shy / comfortable quiet",
        favor="curious sad hungry thirsty / noisy dark",
    ),
    _scene(
        "stay in",
        "animal person",
        "forest garden park field",
        against="curious hungry nervous thirsty / noisy dark dangerous",
        favor="tired sick lazy sad shy / quiet",
    ),
    _scene(
        "stay in",
        "pet person",
        "house castle bedroom kitchen bed",
        against="curious hungry nervous thirsty / noisy dark hard",
        favor="tired sick lazy sad shy / comfortable quiet soft",
    ),
    _scene(
        "break",
        "strong pet person",
        "chair clock lamp window ladder",
        favor="clumsy nervous / fragile",
        after="sad afraid / expensive",
    ),
    _scene(
        "buy",
        "person",
        "clothing bag lamp clock car bicycle sofa armchair table computer motorcycle boat",
        against="poor tired / expensive heavy fragile dirty",
        favor="rich / beautiful comfortable modern",
        after="proud happy poor / expensive comfortable broken",
    ),
    _scene(
        "read",
        "person",
        "reading",
        against="tired lazy sick nervous / long boring",
        favor="curious sad / interesting famous",
        after="happy tired proud / long boring interesting",
    ),
    _scene(
        "wear",
        "person",
        "clothing",
        against="shy proud / expensive dirty long heavy",
        favor="rich happy / clean comfortable light beautiful",
    ),
    _scene(
        "wash",
        "person",
        "car shirt dress truck bicycle window coat",
        against="lazy tired sick / clean fragile",
        favor="kind proud / dirty",
        after="tired proud / dirty",
    ),
    _scene(
        "sell",
        "person",
        "house car bicycle boat clock computer sofa motorcycle",
        against="rich proud sad / broken dirty",
        favor="poor / noisy expensive",
        after="sad happy / expensive broken",
    ),
    _scene(
        "repair",
        "person",
        "bicycle clock chair lamp ladder computer boat table",
        against="lazy tired clumsy sick / fragile",
        favor="clever kind / broken expensive",
        after="proud tired / fragile expensive",
    ),
    _scene(
        "visit",
        "person",
        "museum castle church village city island",
        against="tired lazy sick / boring noisy dangerous",
        favor="curious / famous interesting beautiful",
        after="happy tired / interesting boring quiet",
    ),
    _scene(
        "touch",
        "animal person",
        "axe lamp clock ladder",
        against="shy afraid nervous / dangerous fragile",
        favor="curious brave / beautiful pretty",
    ),
)

# what is only stated, without a reason
PLAIN = (
    _scene("see", "person", "animal person vehicle building tree tower mountain"),
    _scene("look for", "person", "key bag hat letter book pet hotel street"),
    _scene("find", "person", "item bag basket suitcase pet"),
    _scene("lose", "person", "key bag hat letter book suitcase coat"),
    _scene("forget", "person", "key bag hat letter book suitcase coat"),
    _scene("take", "person", "key bag hat letter book suitcase coat box car bicycle"),
    _scene("draw", "person", "animal house castle tree boat mountain tower"),
    _scene("paint", "person", "door wall fence house table chair boat bedroom kitchen"),
    _scene("photograph", "person", "animal person building tower mountain lake island"),
    _scene("look at", "animal person", "animal boat tower mountain lake tree river clock"),
    _scene("hear", "person", "animal truck motorcycle singer child"),
    _scene("close", "person", "door window box suitcase bag"),
)

JOURNEYS = (
    _scene("go to", "person", "museum castle church school hotel park village lake river garden"),
    _scene("walk to", "animal person", "bridge river lake tree church castle house village forest"),
    _scene("arrive at", "person", "museum castle church school hotel park village lake"),
    _scene("come back from", "person", "museum church school hotel park village forest lake island city"),
    _scene("come out of", "animal person", "house castle church forest kitchen bedroom tunnel garden"),
    _scene("fall into", "animal youth", "river lake"),
)

# who and what can be where
SPOTS: tuple[tuple[tuple[Noun, ...], tuple[Spot, ...]], ...] = (
    (
        nouns("fruit carrot cake egg"),
        _spots(
            "on | sur | table chair",
            "under | sous | table",
            "in | dans | box bag basket kitchen",
            "near | près de | window lamp",
        ),
    ),
    (
        nouns("book letter newspaper clothing key bag box lamp"),
        _spots(
            "on | sur | table chair bed sofa armchair",
            "under | sous | table chair bed sofa",
            "in | dans | box bag basket suitcase kitchen bedroom car",
            "near | près de | door window lamp bed",
            "behind | derrière | door sofa armchair",
        ),
    ),
    (
        nouns("pet"),
        _spots(
            "on | sur | table chair bed sofa",
            "under | sous | table chair bed sofa car tree",
            "in | dans | box basket kitchen bedroom garden house",
            "behind | derrière | door sofa armchair hedge",
        ),
    ),
    (
        nouns("animal person"),
        _spots(
            "in | dans | garden field forest park village street",
            "near | près de | river lake tree bridge castle house road",
            "behind | derrière | house hedge tree wall church",
            "in front of | devant | house school castle hotel church",
        ),
    ),
    (
        nouns("boat"),
        _spots("near | près de | bridge castle village hotel", "on | sur | river lake"),
    ),
    (
        nouns("car truck bicycle motorcycle tree"),
        _spots(
            "near | près de | river lake forest road",
            "in | dans | street garden",
            "behind | derrière | church castle school house",
            "in front of | devant | museum hotel school castle house",
        ),
    ),
    (
        nouns("building tower bridge garden park"),
        _spots(
            "near | près de | river lake forest road",
            "in | dans | village city",
        ),
    ),
)
