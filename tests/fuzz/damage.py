"""Random damage to files: bytes put in, left out or taken from elsewhere, and other values in JSON and TOML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from random import Random
from typing import Any

LARGEST = 20_000
"""Bytes of a damaged file."""
LARGE = 300_000
"""Bytes of a file with a token repeated many times."""

TOKENS: Sequence[bytes] = [  # what formats are made of
    *(
        b"<",
        b">",
        b"/>",
        b"</",
        b"&",
        b"&#0;",
        b"&#13;",
        b"&a;",
        b'"',
        b"'",
        b"\\",
        b"\0",
        b"\r",
        b"\n",
        b"\n\n",
        b"\t",
    ),
    *(b"<![CDATA[", b"]]>", b"<!--", b"-->", b"<?", b'<!DOCTYPE a [<!ENTITY a "b">]>', b"<seg>", b"</seg>", b"<tuv>"),
    *(b"<target>", b"</source>", b'<mrk mtype="seg">', b"<g/>", b' state="', b' xml:lang="en"', b"xmlns:", b"<sub>"),
    *(
        b"msgid ",
        b"msgstr ",
        b"msgstr[0] ",
        b"msgctxt ",
        b"msgid_plural ",
        b"#~ ",
        b"#, fuzzy\n",
        b"charset=",
        b"utf-7",
    ),
    *(b"{", b"}", b"[", b"]", b":", b",", b";", b"|", b"`", b"```\n", b"*", b"_", b"# ", b"- ", b"> ", b"](", b"---\n"),
    *(
        b" --> ",
        b"00:00:00,000",
        b"WEBVTT",
        b"NOTE",
        b"1e999",
        b"9" * 400,
        b"-1",
        b"\xff",
        b"\xfe\xff",
        b"\xef\xbb\xbf",
    ),
    *(
        b"\xc3",
        b"\xed\xa0\x80",
        "\u2028".encode(),
        "\x85".encode(),
        "\u202e".encode(),
        "𝄞".encode(),
        b"\\ud800",
        b"\\u0000",
    ),
    *(b"(" * 300, b"[" * 3000, b"<a>" * 300, b"> " * 300, b"*" * 300, b"{" * 300, b"  " * 300, b"\xff\xff\xff\xff"),
]
WHOLE: Sequence[bytes] = [  # what leaves XML well-formed, where it is put into text
    b'<mrk mtype="seg" mid="2">x</mrk>',
    b"<target>x</target>",
    b'<target state="final"><x id="9"/></target>',
    b"<source>y</source>",
    b'<seg-source><mrk mtype="seg" mid="1">z</mrk></seg-source>',
    b'<tuv xml:lang="de"><seg>z</seg></tuv>',
    b"<tuv lang='en-GB'><seg/></tuv>",
    b"<segment><source>a</source></segment>",
    b'<g id="7">b<ph id="8">&lt;c/&gt;</ph></g>',
    b"<!-- d -->",
    b"<?e f?>",
    b"<![CDATA[<g>]]>",
    b"&amp;&#x85;&#13;",
]
NUMBERS = [0, 1, -1, 2, 3, 7, 255, 65_536, 10**9, 2**31 - 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, math.nan, math.inf]
VALUES: list[Any] = [
    *NUMBERS,
    True,
    False,
    None,
    "",
    "a",
    "auto",
    "\0",
    "\ud800",
    "x" * 3000,
    [],
    {},
    [[]],
    {"a": 1},
    [1, "b"],
]
"""Values that programs do not expect in JSON."""
TOML_VALUES = [
    "0",
    "-1",
    "1",
    "10_000",
    "1e309",
    "nan",
    "-inf",
    "0x7fffffffffffffff",
    "9" * 30,
    "true",
    "''",
    '"auto"',
    "[]",
]
TOML_VALUES += [
    "[[1], {a = 2}]",
    "{}",
    "1979-05-27T07:32:00Z",
    '"\\u0000"',
    "[" * 40 + "]" * 40,
    '["en-de", "de-en"]',
    "x",
]


def damaged(content: bytes, random: Random) -> bytes:
    """Returns a file with some bytes put in, left out, or taken from elsewhere in it."""
    for _ in range(random.randint(1, 4)):
        new = random.choice([*WHOLE, *TOKENS] if random.random() < 0.8 else [random.randbytes(random.randrange(4))])
        start, other = random.randrange(len(content) + 1), random.randrange(len(content) + 1)
        match random.randrange(8):
            case 0 if new in WHOLE:  # behind a tag
                start = content.find(b">", start) + 1
                content = content[:start] + new + content[start:]
            case 1:  # cut off
                content = content[:start] + new
            case 2:  # a copy of what stands elsewhere
                content = content[:start] + content[other : other + random.randrange(160)] + content[start:]
            case _:
                content = content[:start] + new + content[start + max(0, random.randrange(30) - 15) :]
    return content[:LARGEST]


def enlarged(content: bytes, random: Random) -> bytes:
    """Returns a file with a token repeated many times somewhere in it, and perhaps without its end."""
    token = random.choice([*TOKENS, *WHOLE])
    place = random.randrange(len(content) + 1)
    end = random.choice([content[place:], b""])
    return content[:place] + token * (LARGE // len(token)) + end


def with_other_values(content: bytes, random: Random) -> bytes:
    """Returns JSON with some values replaced, removed, exchanged or put under another name."""
    try:
        root = [json.loads(content)]
    except (ValueError, RecursionError):
        return damaged(content, random)
    for _ in range(random.randint(1, 3)):
        places = list(_places(root))
        holder, key = random.choice(places)
        match random.randrange(8):
            case 0 if holder is not root:
                del holder[key]
            case 1:
                holder[key] = random.choice(places[1:] or places)[0]
            case 2 if isinstance(holder, dict):
                holder[random.choice(["", "a", "Regex", "type", "size", *holder])] = holder[key]
            case 3 if isinstance(holder[key], str):
                holder[key] = damaged(holder[key].encode("utf-8", "replace"), random).decode("utf-8", "replace")
            case 4 if isinstance(holder[key], int | float):
                holder[key] = random.choice(
                    [*NUMBERS, holder[key] + 1, holder[key] - 1, -holder[key], holder[key] * 1000]
                )
            case _:
                holder[key] = random.choice(VALUES)
    try:
        return json.dumps(root[0]).encode()
    except (ValueError, RecursionError):  # a value in itself
        return damaged(content, random)


def _places(value: Any) -> Sequence[tuple[Any, Any]]:
    """Returns each place of a value in JSON, as the list or object that holds it, and its index or name."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 3000:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys if isinstance(holder[key], dict | list)]
    return found


def with_other_settings(content: bytes, random: Random) -> bytes:
    """Returns TOML with some lines that have another value, or stand elsewhere."""
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(random.randint(1, 3)):
        place, other = random.randrange(len(lines)), random.randrange(len(lines))
        name, equals, value = lines[place].partition("=")
        match random.randrange(6):
            case 0:
                lines[place : place + 1] = []
            case 1:
                lines.insert(place, lines[other])
            case 2:
                lines[place] = name + equals + lines[other].partition("=")[2]
            case 3 if numbers := re.findall(r"\d+", value):
                lines[place] = name + equals + value.replace(numbers[0], str(random.choice(NUMBERS)))
            case _:
                lines[place] = f"{name}= {random.choice(TOML_VALUES)}"
        lines = lines or [""]
    return "\n".join(lines).encode()
