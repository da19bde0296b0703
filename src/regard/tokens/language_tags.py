"""Language tags such as en, en-US, EN_us and zh-Hant-TW: parses and compares them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

CHINESE = {"zh", "zho", "chi", "cmn", "yue"}
JAPANESE = {"ja", "jpn"}
UNSPACED = CHINESE | JAPANESE | {"th", "tha", "lo", "lao", "km", "khm", "my", "mya"}
"""Primary codes of languages that are written without spaces."""

TWO_LETTERS = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
"""All codes of ISO 639-1."""
THREE_LETTERS = (
    "afr aka alb amh ara arg arm arz asm ast aym aze bak bam baq bel ben bih bod bos bre bul bur cat ceb ces che chi "
    "chv ckb cmn cor cos cre cym cze dan deu div dsb dut dzo ell eng epo est eus ewe fao fas fij fil fin fra fre fry "
    "ful geo ger gla gle glg glv gre grn gsw guj hat hau haw heb hin hmn hrv hsb hun hye ibo ice ido iku ile ina ind "
    "isl ita jav jpn kab kal kan kas kat kaz khm kik kin kir kmr kom kon kor kur lao lat lav lij lim lin lit lmo ltz "
    "lug mac mal mao mar may mkd mlg mlt mon mri msa mya nav nds nep nld nno nob nor nya oci ori orm oss pan per pes "
    "pol por pus que roh ron rum run rus sag san scn sin slk slo slv sme smo sna snd som sot spa sqi srd srp ssw sun "
    "swa swe szl tah tam tat tel tgk tgl tha tib tir ton tsn tso tuk tur twi uig ukr urd uzb vec ven vie wel wln wol "
    "wuu xho yid yor yue zha zho zsm zul"
)
"""Codes of ISO 639-2 and 639-3 that often appear in the names of corpora."""

CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_](?:[A-Za-z]{2}|[A-Za-z]{4}|\d{3})){0,2}(?:@[A-Za-z]+)?")


def is_language(code: str) -> bool:
    """Returns whether a file suffix such as de, pt_BR or eng_Latn is a language code."""
    known = primary(code) in (*TWO_LETTERS.split(), *THREE_LETTERS.split())
    return CODE.fullmatch(code) is not None and (known or re.fullmatch(r"[a-z]{3}_[A-Z][a-z]{3}", code) is not None)


@lru_cache(1000)
def normalize_code(code: str) -> str:
    """Returns the code in the spelling that directions use: EN-us becomes en_US."""
    first, *rest = re.split("[-_]", code.strip())
    return "_".join([first.lower(), *(part.title() if len(part) == 4 else part.upper() for part in rest)])


def primary(code: str) -> str:
    """Returns the code without script and region."""
    return normalize_code(code).split("_")[0].split("@")[0]


@lru_cache(1000)
def matches_code(code: str, wanted: str) -> bool:
    """Returns whether a code is the wanted one; a wanted code without a region matches any region."""
    return normalize_code(code) == normalize_code(wanted) or primary(code) == normalize_code(wanted)


def same_language(code: str, wanted: str) -> bool:
    """Returns whether two codes name the same language; a region that only one of them has is ignored."""
    return matches_code(code, wanted) or matches_code(wanted, code)


def best_match(codes: Iterable[str], wanted: str) -> str | None:
    """Returns the code that equals `wanted`, else the first that matches it, else the first of the same language."""
    close = [code for code in codes if same_language(code, wanted)]
    ranked = sorted(
        close,
        key=lambda code: (
            0 if normalize_code(code) == normalize_code(wanted) else 1 if matches_code(code, wanted) else 2
        ),
    )
    return ranked[0] if ranked else None
