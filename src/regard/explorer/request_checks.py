"""Checks and completes the explorer's requests; errors name the field that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from regard.decoding.translator import with_options
from regard.errors import InputError, SettingsError
from regard.settings import DecodingSettings


class MissingError(InputError):
    """Nothing has the name or number that was requested."""


class TooBigError(InputError):
    """More was requested than one answer may contain."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of the runs that are kept."""

    tokens: int = 128
    beam: int = 16
    top: int = 50
    weights: int = 1_000_000
    runs: int = 16
    ablation_batch: int = 64
    characters: int = 20_000
    patches: int = 256


LIMITS = Limits()
SHOWN = (
    "beam", "length_penalty", "penalty", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed",
    "max_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class RunRequest:
    """A run to make: a text, the decoding settings, patches, and further options."""

    text: str
    decode: DecodingSettings
    target: str | None = None
    pair: str | None = None
    patch: tuple[Mapping[str, Any], ...] = ()
    order: tuple[int, ...] | None = None
    prefix: tuple[int, ...] | None = None
    checkpoint: str | None = None
    to: str | None = None  # the language to translate into, of a model of several directions

    def to_json(self) -> dict[str, Any]:
        """Returns the complete request."""
        decode = asdict(self.decode)
        return {
            "text": self.text,
            "target": self.target,
            "decode": {name: decode[name] for name in SHOWN},
            "patch": [dict(patch) for patch in self.patch],
            "order": None if self.order is None else list(self.order),
            "prefix": None if self.prefix is None else list(self.prefix),
            "checkpoint": self.checkpoint,
            "pair": self.pair,
            **({} if self.to is None else {"to": self.to}),
        }


def read_request(body: Mapping[str, Any], decoding: DecodingSettings) -> RunRequest:
    """Reads a request; decoding settings that it does not name are those of `decoding`, the model's own."""
    known = ("text", "target", "decode", "patch", "order", "prefix", "checkpoint", "pair", "to")
    for name in body:
        if name not in known:
            raise InputError(f"{name}: unknown field; a run has the fields {', '.join(known)}")
    if body.get("text") is None:
        raise InputError("text: is missing; give the text to run")
    request = RunRequest(
        text=_text(body, "text") or "",
        decode=read_decode(body.get("decode"), decoding),
        target=_text(body, "target"),
        pair=_text(body, "pair"),
        patch=_patches(body.get("patch")),
        order=_numbers(body, "order"),
        prefix=_numbers(body, "prefix") or None,
        checkpoint=_text(body, "checkpoint"),
        to=_text(body, "to"),
    )
    if request.target is not None and request.prefix is not None:
        raise InputError("target and prefix: give only one of them; both set the output")
    if request.order is not None and sorted(request.order) != list(range(len(request.order))):
        raise InputError(f"order: must contain each number from 0 to {len(request.order) - 1} once")
    return request


def read_decode(options: Any, decoding: DecodingSettings) -> DecodingSettings:
    """Returns decoding settings with these options, within the explorer's limits."""
    if not isinstance(options, Mapping | None):
        raise InputError('decode: must be an object such as {"beam": 4}')
    own = replace(
        decoding,
        alternatives=0,
        beam=min(decoding.beam, LIMITS.beam),
        max_tokens=min(decoding.max_tokens, LIMITS.tokens),
    )
    given = dict(options or {})
    for name in given:
        if name not in SHOWN:
            raise InputError(f"decode.{name}: unknown setting; decode has {', '.join(SHOWN)}")
    try:
        settings = with_options(own, given)
    except SettingsError as error:
        raise InputError(str(error).replace("decoding.", "decode.")) from None
    for name, most in (("beam", LIMITS.beam), ("max_tokens", LIMITS.tokens)):
        if getattr(settings, name) > most:
            raise InputError(f"decode.{name}: must be at most {most} here, not {getattr(settings, name)}")
    return settings


def whole_number(value: Any, field: str, low: int = 0, high: int | None = None) -> int:
    """Returns a whole number within its bounds; raises InputError that names the field."""
    if type(value) is str:
        try:
            value = int(value)
        except ValueError:
            raise InputError(f"{field}: must be a whole number, not {value[:40]!r}") from None
    if type(value) is not int:
        raise InputError(f"{field}: must be a whole number, not {str(value)[:40]}")
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InputError(f"{field}: must be {bounds}, not {value}")
    return value


def _text(body: Mapping[str, Any], field: str) -> str | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(f"{field}: must be text, not {str(value)[:40]}")
    if len(value) > LIMITS.characters:
        raise InputError(f"{field}: has {len(value):,} characters, more than {LIMITS.characters:,}: shorten it")
    return value


def _numbers(body: Mapping[str, Any], field: str) -> tuple[int, ...] | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(type(each) is int for each in value):
        raise InputError(f"{field}: must be a list of whole numbers")
    if len(value) > LIMITS.tokens:
        raise InputError(f"{field}: has {len(value)} numbers, more than {LIMITS.tokens}")
    return tuple(value)


def _patches(value: Any) -> tuple[Mapping[str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        raise InputError('patch: must be a list of objects such as {"site": ..., "op": ...}')
    if len(value) > LIMITS.patches:
        raise InputError(f"patch: has {len(value)} patches, more than {LIMITS.patches}")
    return tuple(value)
