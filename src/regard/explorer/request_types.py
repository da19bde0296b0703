"""The types that parse and validate requests to the explorer; error messages name the invalid field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, ValidationError

from regard.decoding.translator import with_options
from regard.errors import InputError, SettingsError
from regard.settings import DecodingSettings

T = TypeVar("T", bound=Struct)


class MissingError(InputError):
    """Raised when the requested name or id does not exist."""


class TooBigError(InputError):
    """Raised when a request or its answer would be too large."""


@dataclass(frozen=True)
class Limits:
    """Limits for requests, and the number of runs to keep."""

    tokens: int = 128
    beam: int = 16
    top: int = 50
    weights: int = 1_000_000
    runs: int = 16
    ablation_batch: int = 64


LIMITS = Limits()
SHOWN = (
    "beam", "length_penalty", "penalty", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed",
    "max_tokens",
)  # fmt: skip
"""Decoding settings that a request can change."""
WORDS = {"str": "text", "int": "a whole number", "object": "an object", "array": "a list", "null": "null"}
"""Names of the JSON types in error messages."""

ShortText = Annotated[str, Meta(max_length=20_000)]
TokenNumbers = Annotated[list[int], Meta(max_length=LIMITS.tokens)]
WholeNumber = Annotated[int, Meta(ge=0)]


class Patch(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A change of a model during a run: the site, the operation, and the head, query, key or position to change."""

    site: str
    op: str
    head: WholeNumber | None = None
    query: WholeNumber | None = None
    key: WholeNumber | None = None
    position: WholeNumber | None = None


class RunRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to run a text through the model, with decoding settings, patches and other options."""

    text: ShortText
    target: ShortText | None = None
    decode: dict[str, Any] | None = None
    patch: Annotated[list[Patch], Meta(max_length=256)] | None = None
    order: TokenNumbers | None = None
    prefix: TokenNumbers | None = None
    checkpoint: ShortText | None = None
    pair: ShortText | None = None
    to: ShortText | None = None  # language to translate into, for models with several directions

    @property
    def patches(self) -> list[Patch]:
        return self.patch or []

    def to_json(self) -> dict[str, Any]:
        """Returns the request with all fields as JSON."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields if self.to is not None else {name: fields[name] for name in fields if name != "to"}


class AblationRequest(Struct, frozen=True):
    """A request to ablate the heads or sublayers of a run; `targets` limits it to some kinds of attention or stacks."""

    run: str = ""
    what: str = "heads"
    op: str = "zero"
    targets: list[str] | None = None


def convert(fields: Mapping[str, Any], kind: type[T], *, strict: bool = True) -> T:
    """Converts fields to a request of this type; numbers may be strings unless `strict` is true."""
    try:
        return msgspec.convert(fields, kind, strict=strict)
    except ValidationError as error:
        raise InputError(explain(str(error))) from None


def explain(problem: str) -> str:
    """Rewrites an error message of msgspec in the form "decode: must be an object, not a whole number"."""
    reason, _, path = problem.partition(" - at `$.")
    if found := re.fullmatch(r"Object (?:missing required|contains unknown) field `(.*)`", reason):
        fault = "is missing" if "missing" in reason else "unknown field"
        return f"{path.rstrip('`')}{'.' if path else ''}{found[1]}: {fault}"
    reason = re.sub(r"`([\w| ]+)`", lambda match: " or ".join(WORDS.get(t, t) for t in match[1].split(" | ")), reason)
    return f"{path.rstrip('`')}: {reason.replace('Expected', 'must be').replace(', got', ', not')}"


def read_request(body: Mapping[str, Any], decoding: DecodingSettings) -> tuple[RunRequest, DecodingSettings]:
    """Parses a request; decoding settings that it does not contain are taken from `decoding`, those of the model."""
    request = convert(body, RunRequest)
    settings = read_decode(request.decode or {}, decoding)
    if request.target is not None and request.prefix:
        raise InputError("target and prefix: pass only one of them, because both set the output")
    if request.order is not None and sorted(request.order) != list(range(len(request.order))):
        raise InputError(f"order: must contain each number from 0 to {len(request.order) - 1} once")
    shown = {name: value for name, value in asdict(settings).items() if name in SHOWN}
    prefix = request.prefix or None
    return msgspec.structs.replace(request, decode=shown, patch=request.patches, prefix=prefix), settings


def read_decode(options: Mapping[str, Any], decoding: DecodingSettings) -> DecodingSettings:
    """Returns the decoding settings changed by `options`; raises an error if they exceed the limits of the explorer."""
    most = {"beam": LIMITS.beam, "max_tokens": LIMITS.tokens}
    own = replace(decoding, alternatives=0, **{name: min(getattr(decoding, name), most[name]) for name in most})
    for name in options:
        if name not in SHOWN:
            raise InputError(f"decode.{name}: unknown setting; decode has {', '.join(SHOWN)}")
    try:
        settings = with_options(own, dict(options))
    except SettingsError as error:
        raise InputError(str(error).replace("decoding.", "decode.")) from None
    for name, limit in most.items():
        if getattr(settings, name) > limit:
            raise InputError(f"decode.{name}: must be at most {limit} here, not {getattr(settings, name)}")
    return settings
