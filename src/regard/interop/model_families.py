"""The families of Hugging Face models, which are declared in families.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Conversion:
    """Converts a foreign tensor to one or several tensors of Regard, and back."""

    read: Callable[[Tensor], Sequence[Tensor]]
    write: Callable[[Sequence[Tensor]], Tensor]


FIRST_POSITION = 2
"""The first position that RoBERTa uses; earlier positions are reserved for padding."""
CONVERSIONS = {
    "same": Conversion(lambda t: [t], lambda ts: ts[0]),
    "transposed": Conversion(lambda t: [t.t()], lambda ts: ts[0].t()),
    "fused": Conversion(lambda t: t.t().chunk(3), lambda ts: torch.cat(list(ts)).t()),  # queries, keys and values
    "flat": Conversion(lambda t: [t.flatten()], lambda ts: ts[0][None]),  # [1, V] and [V]
    "shifted": Conversion(
        lambda t: [t[FIRST_POSITION:]],
        lambda ts: torch.cat([ts[0].new_zeros(FIRST_POSITION, ts[0].shape[1]), ts[0]]),
    ),
}


@dataclass(frozen=True)
class TensorName:
    """The name of a foreign tensor, and the names of the Regard tensors it contains; {n} stands for a layer number."""

    foreign: str
    own: tuple[str, ...]
    conversion: Conversion


@dataclass(frozen=True)
class Family:
    """A family of models; families.toml explains the fields. Exports use the first of several names of a tensor."""

    title: str
    classes: Mapping[str, str]
    prefix: str
    heads: tuple[str, ...]
    begin: tuple[str, ...]
    end: tuple[str, ...]
    spelled: Mapping[str, str]
    fixed: Mapping[str, Any]
    config: Mapping[str, tuple[str, Any]]
    names: tuple[TensorName, ...]
    refused: Mapping[str, tuple[Any, str]]
    signature: tuple[str, ...] = ()
    between: int = 1
    ignored: str = "(?!)"  # matches nothing

    def without_prefix(self, name: str) -> str | None:
        """Returns a foreign name without the prefix of the family, or None for a tensor that is not a weight."""
        name = name.removeprefix(self.prefix)
        if name.endswith((".gamma", ".beta")):  # names of norm parameters in early BERT files
            name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
        return None if re.search(self.ignored, name) else name

    def with_prefix(self, name: str) -> str:
        return name if name.startswith(self.heads) else self.prefix + name

    def foreign_names(self, *own: str) -> list[str]:
        """Returns the foreign names of Regard tensors; the preferred name of each comes first."""
        return [name.foreign for wanted in own for name in self.names if name.own == (wanted,)]

    def without_shared_table(self) -> Family:
        """Returns the family without the shared embedding table, for models with separate tables."""
        return replace(self, names=tuple(name for name in self.names if not name.foreign.startswith("shared.")))

    def fits(self, config: Mapping[str, Any], tensors: Collection[str]) -> bool:
        """Reports whether a config.json and tensor names clearly belong to this family."""
        required = [key for key, (_, default) in self.config.items() if default is None]
        ends = [any(f".{name}".endswith(f".{end}") for name in tensors) for end in self.signature]
        return bool(ends) and all(ends) and all(config.get(key) is not None for key in required)

    def of_layers(self, own: Iterable[str]) -> Iterator[TensorName]:
        """Yields the tensor names of a model, with {n} replaced by each layer number."""
        own = set(own)
        for name in self.names:
            layer = 0
            while name.own[0].replace("{n}", str(layer)) in own:
                numbered = tuple(each.replace("{n}", str(layer)) for each in name.own)
                yield TensorName(name.foreign.replace("{n}", str(layer)), numbered, name.conversion)
                if "{n}" not in name.foreign:
                    break
                layer += 1


def _names(foreign: str, own: str, own_prefix: str = "") -> Iterator[TensorName]:
    """Parses one line of the weights in families.toml."""
    parts, conversion = own.split()[0].split(","), CONVERSIONS[own.partition(" ")[2] or "same"]
    single = foreign.endswith(("weight", "bias"))
    for kind in ("",) if single else (".weight", ".bias"):
        yield TensorName(foreign + kind, tuple(f"{own_prefix}{part}{kind}" for part in parts), conversion)


def _family(table: Mapping[str, Any]) -> Family:
    weights, stacks, layers = (table[name] for name in ("weights", "stacks", "layers"))
    names = [name for line in weights.items() for name in _names(*line)]
    for foreign_prefix, own_prefix in stacks.items():
        for foreign, own in layers.items():
            names += _names(foreign_prefix + foreign, own, own_prefix)
    plain = {key: value for key, value in table.items() if key not in ("weights", "stacks", "layers")}
    plain |= {key: tuple(table.get(key, ())) for key in ("heads", "begin", "end", "signature")}
    keys = {key: (value, None) if isinstance(value, str) else tuple(value) for key, value in table["config"].items()}
    return Family(**{"refused": {}, **plain, "config": keys, "names": tuple(names)})


@cache
def families() -> dict[str, Family]:
    """Returns all families, keyed by model_type."""
    tables = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))
    return {name: family for table in tables.values() for family in [_family(table)] for name in family.classes}
