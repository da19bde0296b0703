"""The words of the demonstration grammar: nouns, adjectives and verbs, English beside French.

Each English word has one French translation, so that an English sentence of the grammar determines
its French one. Nouns carry tags ("animal", "clothing"); an adjective names the tags and the nouns
that it can sensibly describe.
"""

from __future__ import annotations

from dataclasses import dataclass

PERSONS = ("je", "il", "nous", "vous", "ils")  # the order of every table of conjugated forms


@dataclass(frozen=True, eq=False)
class Noun:
    english: tuple[str, str]  # singular, plural
    french: tuple[str, str]
    feminine: bool
    tags: frozenset[str]  # its own English name among them

    @property
    def name(self) -> str:
        return self.english[0]


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    french: tuple[str, str, str, str]  # masculine, feminine, masculine plural, feminine plural
    liaison: str  # the masculine before a vowel: "bel" for "beau"
    position: str  # "before" or "after" the noun, or "predicate": never beside it
    graded: bool  # can be "too" or "very"
    lasting: bool  # does not come and go, so that "when it is wide" would be odd
    idiom: str  # what one has in French: "faim" for "hungry"
    fits: frozenset[str]  # names of the nouns that it can describe


@dataclass(frozen=True, eq=False)
class VerbForms:
    english: str  # base form, with its preposition: "jump over"
    third: str
    past: str
    infinitive: str
    present: tuple[str, ...]  # in the order of PERSONS
    participle: str
    tail: str  # what follows the French verb: "par-dessus"
    moves: bool  # builds its past with être, so that the participle agrees

    @property
    def shows_past(self) -> bool:
        """Whether the English past differs from the base form (unlike "read")."""
        return self.past != self.english


def _noun(row: str) -> Noun:
    english, french, gender, *tags = row.split()
    singular, _, plural = english.partition("/")
    un, _, des = french.partition("/")
    names = (singular, plural or singular + "s")
    return Noun(names, (un, des or _plural(un)), gender == "f", frozenset((singular, *tags)))


def _adjective(row: str) -> Adjective:
    head, fits = row.split(":")
    english, french, marks, *idiom = head.split()
    forms = french.replace("_", " ").split("/")
    masculine = forms[0]
    feminine = forms[1] if len(forms) > 1 else masculine if masculine.endswith("e") else masculine + "e"
    many = forms[2] if len(forms) > 2 else _plural(masculine)
    position = {"B": "before", "A": "after", "P": "predicate"}[marks[0]]
    wanted = frozenset(fits.split())
    return Adjective(
        english=english,
        french=(masculine, feminine, many, _plural(feminine)),
        liaison=forms[3] if len(forms) > 3 else masculine,
        position=position,
        graded="x" not in marks,
        lasting="l" in marks,
        idiom=idiom[0] if idiom else "",
        fits=frozenset(noun.name for noun in NOUNS.values() if wanted & noun.tags),
    )


def _verb(
    english: str,
    infinitive: str,
    present: str = "",
    participle: str = "",
    tail: str = "",
    moves: bool = False,
) -> VerbForms:
    base, past, third = (*english.split("/"), "", "")[:3]
    first, _, rest = base.partition(" ")
    rest = f" {rest}" if rest else ""
    stem = infinitive[:-2]
    regular = tuple(stem + ending for ending in ("e", "e", "ons", "ez", "ent"))
    return VerbForms(
        english=base,
        third=(third or _suffixed(first, "s")) + rest,
        past=(past or _suffixed(first, "ed")) + rest,
        infinitive=infinitive,
        present=tuple(present.split()) or regular,
        participle=participle or stem + "é",
        tail=tail,
        moves=moves,
    )


def _plural(word: str) -> str:
    head, space, rest = word.partition(" ")  # "fermée à clé" -> "fermées à clé"
    return (head if head[-1] in "sx" else head + "s") + space + rest


def _suffixed(word: str, suffix: str) -> str:
    """An English verb with -s or -ed, spelt right."""
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + {"s": "ies", "ed": "ied"}[suffix]
    if suffix == "s":
        return word + ("es" if word.endswith(("ch", "sh", "ss", "x", "o")) else "s")
    return word + ("d" if word.endswith("e") else "ed")


# name or singular/plural, French name or singular/plural, gender, tags
_NOUN_ROWS = """
animal        animal/animaux    m  animal strong climber jumper
dog           chien             m  animal pet furry jumper opener
cat           chat              m  animal pet furry climber jumper opener
horse         cheval/chevaux    m  animal furry strong jumper
rabbit        lapin             m  animal pet furry jumper
bear          ours              m  animal furry strong climber opener
monkey        singe             m  animal strong climber jumper opener
elephant      éléphant          m  animal strong
owl           hibou/hiboux      m  animal
bird          oiseau/oiseaux    m  animal
mouse/mice    souris            f  animal pet furry climber opener
cow           vache             f  animal furry strong
goat          chèvre            f  animal furry strong climber jumper opener
hen           poule             f  animal pet furry jumper
turtle        tortue            f  animal pet
frog          grenouille        f  animal jumper
giraffe       girafe            f  animal strong
lioness/lionesses lionne        f  animal strong climber jumper opener
swallow       hirondelle        f  animal
man/men       homme             m  person
boy           garçon            m  person youth
king          roi               m  person
teacher       professeur        m  person expert known
doctor        médecin           m  person expert known
brother       frère             m  person relative
friend        ami               m  person relative
child/children enfant           m  person youth
woman/women   femme             f  person
girl          fille             f  person youth
queen         reine             f  person
neighbor      voisine           f  person known
baker         boulangère        f  person expert known
sister        sœur              f  person relative
singer        chanteuse         f  person expert
student       étudiante         f  person expert known
street        rue               f  way
road          route             f  way
bridge        pont              m  way
tunnel        tunnel            m  way
river         rivière           f  waters
lake          lac               m  waters
forest        forêt             f  land
field         champ             m  land
garden        jardin            m  land own
park          parc              m  land
island        île               f  land
mountain      montagne          f  height
tower         tour              f  height
wall          mur               m  barrier
fence         barrière          f  barrier
hedge         haie              f  barrier
tree          arbre             m  plant
house         maison            f  building own
castle        château/châteaux  m  building own
church/churches église          f  building
museum        musée             m  building
hotel         hôtel             m  building
school        école             f  building
village       village           m  town
city/cities   ville             f  town
kitchen       cuisine           f  room own
bedroom       chambre           f  room own
box/boxes     boîte             f  container own
suitcase      valise            f  container own
bag           sac               m  container own
basket        panier            m  container own
table         table             f  furniture own
chair         chaise            f  furniture own
bed           lit               m  furniture own
sofa          canapé            m  furniture own
armchair      fauteuil          m  furniture own
door          porte             f  opening
window        fenêtre           f  opening
book          livre             m  reading own item
letter        lettre            f  reading own item
newspaper     journal/journaux  m  reading own item
story/stories histoire          f  reading
coat          manteau/manteaux  m  clothing own item
scarf/scarves écharpe           f  clothing own item
hat           chapeau/chapeaux  m  clothing own item
shirt         chemise           f  clothing own item
car           voiture           f  vehicle own
truck         camion            m  vehicle own
boat          bateau/bateaux    m  vehicle own
bicycle       vélo              m  vehicle own
motorcycle    moto              f  vehicle own
apple         pomme             f  food fruit item
strawberry/strawberries fraise  f  food fruit item
carrot        carotte           f  food item
cake          gâteau/gâteaux    m  food item
egg           œuf               m  food item
bean          haricot           m  food item
cheese        fromage           m  food mass
bread         pain              m  food mass
soup          soupe             f  food mass
meat          viande            f  food mass
milk          lait              m  drink mass
water         eau               f  drink mass
coffee        café              m  drink mass
key           clé               f  tool own item
lamp          lampe             f  tool own
clock         horloge           f  tool own
axe           hache             f  tool own
ladder        échelle           f  tool own
computer      ordinateur        m  tool own
"""

# name, French masculine/feminine/masculine plural/before a vowel (regular forms left out), marks,
# what one has in French; then the nouns that it fits. Marks: Before the noun, After it, Predicate
# only; x: neither "too" nor "very"; l: lasting
_ADJECTIVE_ROWS = """
beautiful beau/belle/beaux/bel Bl: animal waters land building town room clothing vehicle tree bridge
  story lamp
small petit Bl: animal youth way lake garden park island building town room container furniture
  opening clothing vehicle lamp clock key tree fruit cake egg
big gros/grosse Bl: dog cat bear elephant rabbit bird mouse cow frog turtle hen tree container armchair book
  fruit cake carrot egg car truck boat motorcycle clock key lamp hat coat computer axe
large grand Bl: waters land building town room table bed window sofa
old vieux/vieille/vieux/vieil Bl: animal man woman king queen teacher doctor friend baker way building
  town furniture clothing vehicle reading tree clock wall tower computer
young jeune Bl: animal person
good bon/bonne B: food milk coffee book story hotel expert friend
new nouveau/nouvelle/nouveaux/nouvel Bxl: expert neighbor friend road bridge house hotel school museum kitchen
  container furniture clothing vehicle book newspaper tool door
pretty joli Bl: cat bird rabbit swallow garden park island village house church bedroom kitchen scarf hat
  shirt coat lamp clock box basket story
long long/longue Bl: way river letter story scarf coat ladder fence hedge wall
bad mauvais B: soup cheese bread cake meat coffee book story hotel newspaper
high haut Bl: mountain wall fence hedge tower
tall haut Pl: tree tower
kind gentil/gentille Bl: expert relative known youth woman king queen dog
red rouge Axl: clothing vehicle box bag suitcase chair sofa armchair door apple house
blue bleu Axl: clothing vehicle box bag suitcase chair sofa armchair door house bird
green vert Axl: clothing vehicle box bag suitcase chair sofa armchair door frog turtle bird
yellow jaune Axl: clothing vehicle box bag suitcase chair sofa armchair door house bird
white blanc/blanche Axl: furry clothing vehicle house church castle wall door table bed lamp bird owl
black noir Axl: furry clothing vehicle bag suitcase armchair sofa bird
gray gris Axl: furry clothing vehicle wall castle elephant bird owl suitcase
tired fatigué A: animal person
sick malade A: animal person
hungry affamé A faim: animal person
thirsty assoiffé A soif: animal person
afraid effrayé P peur: animal person
happy heureux/heureuse A: animal person
sad triste A: animal person story
curious curieux/curieuse Al: animal person
brave courageux/courageuse Al: animal person
lazy paresseux/paresseuse Al: animal person
shy timide Al: animal person
strong fort Al: strong man woman boy girl
weak faible Al: animal person
slow lent Al: animal vehicle
fast rapide Al: horse dog rabbit mouse swallow lioness car boat motorcycle truck
clever intelligent Al: animal person
proud fier/fière A: person horse cat lioness
nervous nerveux/nerveuse A: animal person
clumsy maladroit Al: animal person
poor pauvre Pl: person
rich riche Al: man woman king queen doctor neighbor baker singer
famous célèbre Al: singer doctor museum castle hotel church tower bridge story book city
quiet calme A: youth cat cow turtle street park garden lake forest village hotel house bedroom church island field
wide large Al: way river hedge
narrow étroit Al: way bed door window
deep profond Al: waters
heavy lourd Al: elephant bear cow container table chair sofa armchair door coat axe ladder clock truck car motorcycle
light léger/légère Al: container chair coat ladder bicycle scarf
expensive cher/chère Al: clothing vehicle hotel furniture clock lamp computer house cheese meat cake bag
  suitcase
dirty sale A: youth dog goat clothing container vehicle furniture window street kitchen water
clean propre A: clothing container vehicle furniture window street kitchen bedroom water
empty vide Ax: container street house hotel church bedroom park field tunnel road
dark sombre A: forest tunnel street house castle church bedroom kitchen
cold froid A: soup meat milk water coffee lake river
hot chaud A: soup meat milk water coffee bread
hard dur A: bread cheese carrot bed chair armchair sofa
soft moelleux/moelleuse A: bed sofa armchair cake
comfortable confortable Al: bed sofa armchair chair house hotel coat car castle
fragile fragile Al: clock lamp chair ladder window box bridge boat bicycle
dangerous dangereux/dangereuse Al: bear lioness elephant road street waters bridge tunnel mountain
  forest axe island tower
noisy bruyant A: youth hen dog monkey street city kitchen bedroom hotel school truck motorcycle clock house park
boring ennuyeux/ennuyeuse Al: reading museum
interesting intéressant Al: reading museum city church castle
modern moderne Al: house museum hotel school kitchen lamp furniture city
delicious délicieux/délicieuse Ax: food milk coffee
fresh frais/fraîche A: bread milk cheese egg carrot strawberry meat bean
sweet sucré A: cake fruit coffee
salty salé A: soup cheese meat bean
broken cassé Ax: chair clock lamp ladder window bicycle computer table
locked fermé_à_clé/fermée_à_clé Pxl: door box suitcase house church
"""

NOUNS = {noun.name: noun for noun in map(_noun, _NOUN_ROWS.strip().splitlines())}
ADJECTIVES = {word.english: word for word in map(_adjective, _ADJECTIVE_ROWS.replace("\n  ", " ").strip().splitlines())}


def adjectives(names: str) -> tuple[Adjective, ...]:
    """The adjectives named in one string."""
    return tuple(ADJECTIVES[name] for name in names.split())


COLORS = adjectives("red blue green yellow white black gray")

_VERBS = (
    _verb("cross", "traverser"),
    _verb("climb", "escalader"),
    _verb("climb up", "grimper", tail="à"),
    _verb("jump over", "sauter", tail="par-dessus"),
    _verb("open", "ouvrir", "ouvre ouvre ouvrons ouvrez ouvrent", "ouvert"),
    _verb("close", "fermer"),
    _verb("carry", "porter"),
    _verb("push", "pousser"),
    _verb("eat/ate", "manger", "mange mange mangeons mangez mangent"),
    _verb("drink/drank", "boire", "bois boit buvons buvez boivent", "bu"),
    _verb("sleep in/slept", "dormir", "dors dort dormons dormez dorment", "dormi", tail="dans"),
    _verb("sleep on/slept", "dormir", "dors dort dormons dormez dorment", "dormi", tail="sur"),
    _verb("enter", "entrer", tail="dans", moves=True),
    _verb("stay in", "rester", tail="dans", moves=True),
    _verb("leave/left", "quitter"),
    _verb("break/broke", "casser"),
    _verb("buy/bought", "acheter", "achète achète achetons achetez achètent"),
    _verb("sell/sold", "vendre", "vends vend vendons vendez vendent", "vendu"),
    _verb("read/read", "lire", "lis lit lisons lisez lisent", "lu"),
    _verb("wear/wore", "porter"),
    _verb("wash", "laver"),
    _verb("repair", "réparer"),
    _verb("visit", "visiter"),
    _verb("touch", "toucher"),
    _verb("fit in/fit", "rentrer", tail="dans"),
    _verb("see/saw", "voir", "vois voit voyons voyez voient", "vu"),
    _verb("look for", "chercher"),
    _verb("find/found", "trouver"),
    _verb("lose/lost", "perdre", "perds perd perdons perdez perdent", "perdu"),
    _verb("forget/forgot", "oublier"),
    _verb("take/took", "prendre", "prends prend prenons prenez prennent", "pris"),
    _verb("draw/drew", "dessiner"),
    _verb("paint", "peindre", "peins peint peignons peignez peignent", "peint"),
    _verb("photograph", "photographier"),
    _verb("look at", "regarder"),
    _verb("hear/heard", "entendre", "entends entend entendons entendez entendent", "entendu"),
    _verb("keep/kept", "garder"),
    _verb("have/had/has", "avoir", "ai a avons avez ont", "eu"),
    _verb("want", "vouloir", "veux veut voulons voulez veulent", "voulu"),
    _verb("think/thought", "penser"),
    _verb("know/knew", "savoir", "sais sait savons savez savent", "su"),
    _verb("say/said", "dire", "dis dit disons dites disent", "dit"),
    _verb("love", "aimer"),
    _verb("hate", "détester"),
    _verb("prefer/preferred", "préférer", "préfère préfère préférons préférez préfèrent"),
    _verb("go to/went", "aller", "vais va allons allez vont", tail="à", moves=True),
    _verb("walk to", "marcher", tail="jusque à"),
    _verb("arrive at", "arriver", tail="à", moves=True),
    _verb("come back from/came", "revenir", "reviens revient revenons revenez reviennent", "revenu", "de", True),
    _verb("come out of/came", "sortir", "sors sort sortons sortez sortent", "sorti", "de", True),
    _verb("fall into/fell", "tomber", tail="dans", moves=True),
)
VERBS = {verb.english: verb for verb in _VERBS} | {
    "like": _verb("like", "aimer", tail="bien"),
    "not like": _verb("like", "aimer"),  # denied or asked, "like" is "aimer" without "bien"
}
