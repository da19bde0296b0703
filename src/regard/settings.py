"""Every option of Regard, declared once, and the presets.

Later wins: defaults, then the preset, then the file, then the flags. `options.py` does the work.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from regard.errors import SettingsError
from regard.options import CHANCE, SHARE, Bounds, Section, at_least, build, merge

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True)
class DataSettings(Section):
    """What the text is and which of it is used."""

    source: Annotated[str, "language of the source side, e.g. en"] = "source"
    target: Annotated[str, "language of the target side, e.g. de"] = "target"
    dev_pairs: Annotated[
        int | None, "pairs split off as dev set when none is given; none: by corpus size", at_least(1)
    ] = None
    max_characters: Annotated[int, "pairs with a longer side are dropped", at_least(1)] = 2000
    undecodable: Annotated[Literal["error", "drop"], "what to do with a line that is not UTF-8"] = "error"


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(Section):
    """How text is cut into subwords."""

    kind: Annotated[
        Literal["bpe", "unigram"], "byte-pair merges (Sennrich et al., 2016) or unigram pieces (Kudo, 2018)"
    ] = "bpe"
    vocabulary: Annotated[int, "token types, special tokens and bytes included", at_least(300)] = 10_000
    joint: Annotated[bool, "one vocabulary for both languages"] = True
    sample: Annotated[int, "sentences of each side that the tokenizer learns from", at_least(1)] = 500_000


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Section):
    """The shape of the Transformer; the defaults are the base model of Vaswani et al. (2017)."""

    width: Annotated[int, "width of the residual stream (d_model)", at_least(1)] = 512
    heads: Annotated[int, "attention heads", at_least(1)] = 8
    key_value_heads: Annotated[
        int | None, "heads of keys and values (grouped-query attention); none: as many as heads", at_least(1)
    ] = None
    key_width: Annotated[int | None, "width of one head's queries and keys (d_k); none: width / heads", at_least(1)] = (
        None
    )
    value_width: Annotated[int | None, "width of one head's values (d_v); none: width / heads", at_least(1)] = None
    hidden: Annotated[int, "width inside the feed-forward layer (d_ff)", at_least(1)] = 2048
    encoder_layers: Annotated[int, "layers of the encoder", at_least(1)] = 6
    decoder_layers: Annotated[int, "layers of the decoder", at_least(1)] = 6
    norm: Annotated[Literal["post", "pre"], "normalise after each residual sum (the paper) or before each sublayer"] = (
        "post"
    )
    norm_kind: Annotated[Literal["layer", "rms"], "LayerNorm, or RMSNorm (Zhang & Sennrich, 2019)"] = "layer"
    norm_epsilon: Annotated[float, "added to the variance", at_least(0)] = 1e-5
    activation: Annotated[
        Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"], "nonlinearity of the feed-forward layer"
    ] = "relu"
    positions: Annotated[
        Literal["sinusoidal", "sinusoidal-halves", "learned", "rotary", "none"],
        "how order is told: sines and cosines interleaved (the paper) or in two halves (tensor2tensor, Marian), a learned table, rotary (Su et al., 2021)",
    ] = "sinusoidal"
    rotary_base: Annotated[float, "longest wavelength of rotary positions, over 2 pi", at_least(1)] = 10_000.0
    max_length: Annotated[int, "longest sequence in tokens", at_least(2)] = 256
    tie: Annotated[
        Literal["all", "output", "inputs", "none"],
        "which embedding tables are one: source, target and output (all), target and output, source and target, or none",
    ] = "all"
    scale_embedding: Annotated[bool, "multiply token embeddings by sqrt(width)"] = True
    embedding_norm: Annotated[bool, "normalise the embeddings (BERT)"] = False
    segments: Annotated[int, "sentence types that have an embedding (BERT: 2)", at_least(0)] = 0
    bias: Annotated[bool, "linear layers of attention and feed-forward have a bias"] = True
    output_bias: Annotated[bool, "the output layer has a bias"] = False
    dropout: Annotated[float, "dropout of sublayer outputs", CHANCE] = 0.1
    embedding_dropout: Annotated[float | None, "dropout of embeddings; none: as dropout", CHANCE] = None
    attention_dropout: Annotated[float, "dropout of attention weights", CHANCE] = 0.0
    activation_dropout: Annotated[float, "dropout inside the feed-forward layer", CHANCE] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.key_width is None or self.value_width is None) and self.width % self.heads:
            raise SettingsError(
                f"model.width {self.width} is not divisible by model.heads {self.heads}: "
                "change one of them or set model.key_width and model.value_width"
            )
        if self.heads % self.query_groups:
            raise SettingsError(
                f"model.heads {self.heads} is not divisible by model.key_value_heads {self.key_value_heads}"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise SettingsError(
                f"rotary positions turn pairs of numbers: a head's key width must be even, not {self.head_width}"
            )
        if self.positions.startswith("sinusoidal") and self.width % 2:
            raise SettingsError(f"sinusoidal positions come in pairs: model.width must be even, not {self.width}")

    @property
    def head_width(self) -> int:
        """K, the width of one head's queries and keys."""
        return self.key_width or self.width // self.heads

    @property
    def head_value_width(self) -> int:
        return self.value_width or self.width // self.heads

    @property
    def query_groups(self) -> int:
        """Heads of keys and values, each shared by a group of query heads."""
        return self.key_value_heads or self.heads


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Section):
    """How the model learns."""

    steps: Annotated[int, "most updates of the weights", at_least(1)] = 20_000
    batch_tokens: Annotated[int, "target tokens of a batch, padding included", at_least(1)] = 4096
    accumulate: Annotated[int, "batches whose gradients are summed for one update", at_least(1)] = 1
    learning_rate: Annotated[float, "highest learning rate", at_least(0)] = 1e-3
    schedule: Annotated[
        Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"],
        "course of the learning rate after warm-up; paper: width^-0.5 min(step^-0.5, step warmup^-1.5), whatever learning_rate says",
    ] = "inverse-sqrt"
    warmup: Annotated[int, "updates in which the learning rate rises", at_least(0)] = 1000
    betas: Annotated[tuple[float, ...], "Adam's decay rates of the two moments", CHANCE] = (0.9, 0.98)
    epsilon: Annotated[float, "Adam's term against division by zero", at_least(0)] = 1e-9
    weight_decay: Annotated[float, "decoupled weight decay (AdamW)", at_least(0)] = 0.0
    clip: Annotated[float, "largest norm of the gradient; 0: no limit", at_least(0)] = 1.0
    label_smoothing: Annotated[float, "probability spread over all tokens (Szegedy et al., 2016)", CHANCE] = 0.1
    evaluate_every: Annotated[
        int, "updates between evaluations on the dev set, each with a checkpoint", at_least(1)
    ] = 500
    evaluate_pairs: Annotated[int, "dev pairs translated at each evaluation", at_least(1)] = 500
    metric: Annotated[Literal["chrf", "bleu", "loss"], "what early stopping watches"] = "chrf"
    patience: Annotated[
        int,
        "evaluations without improvement before training stops, once it has warmed up; 0: never stop early",
        at_least(0),
    ] = 8
    average: Annotated[
        int, "checkpoints averaged into the final weights, the best and those around it", at_least(1)
    ] = 5
    seed: Annotated[int, "makes a run reproducible", at_least(0)] = 1
    device: Annotated[str, "auto, cpu, cuda, cuda:1, mps ..."] = "auto"
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], "type of the products; the weights stay float32"
    ] = "float32"
    threads: Annotated[int | None, "CPU threads; none: all cores", at_least(1)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2:
            raise SettingsError(f"training.betas must be two numbers, not {len(self.betas)}")


@dataclass(frozen=True, kw_only=True)
class DecodingSettings(Section):
    """How text is produced."""

    beam: Annotated[int, "hypotheses kept at each step; 1: greedy", at_least(1)] = 5
    length_penalty: Annotated[float, "alpha of ((5 + length) / 6) ^ alpha (Wu et al., 2016)", Bounds(0, 10)] = 0.6
    alternatives: Annotated[int, "further translations given beside the best", at_least(0)] = 0
    temperature: Annotated[
        float, "0: search for the most probable; above: draw, the higher the wilder", at_least(0)
    ] = 0.0
    top_k: Annotated[int, "draw among the k most probable tokens; 0: all", at_least(0)] = 0
    top_p: Annotated[float, "draw among the most probable tokens that make up this probability", SHARE] = 1.0
    min_p: Annotated[float, "draw among tokens at least this probable, relative to the most probable", SHARE] = 0.0
    seed: Annotated[int, "makes drawing reproducible", at_least(0)] = 0
    max_ratio: Annotated[float, "longest output, as a multiple of the source's tokens (plus 20)", at_least(0)] = 2.0
    batch_tokens: Annotated[int, "source tokens decoded together, padding and beams included", at_least(1)] = 8192


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """All settings of one model and its training; what model.toml holds."""

    task: Annotated[Literal["translate"], "what the model is for"] = "translate"
    preset: Annotated[
        Literal["auto", "tiny", "small", "base", "big"], "size of the model; auto: by corpus size and device"
    ] = "auto"
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.tie in ("all", "inputs") and not self.tokenizer.joint:
            raise SettingsError(
                f"model.tie = {self.model.tie} shares the source and target tables, which needs "
                "tokenizer.joint = true: set model.tie to output or none"
            )


PRESETS: dict[str, dict[str, Any]] = {
    # Wu et al. (2021) found this shape best on 29,000 pairs: small, and strongly regularised.
    "tiny": {
        "tokenizer": {"vocabulary": 8_000},
        "model": {
            "width": 128,
            "hidden": 256,
            "heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "dropout": 0.3,
        },
        "training": {"batch_tokens": 4096, "learning_rate": 5e-3, "warmup": 2000, "steps": 12_000},
    },
    "small": {
        "tokenizer": {"vocabulary": 12_000},
        "model": {
            "width": 256,
            "hidden": 1024,
            "heads": 4,
            "encoder_layers": 3,
            "decoder_layers": 3,
            "dropout": 0.2,
        },
        "training": {"batch_tokens": 4096, "learning_rate": 2e-3, "warmup": 2000, "steps": 40_000},
    },
    "base": {
        "tokenizer": {"vocabulary": 32_000},
        "model": {
            "width": 512,
            "hidden": 2048,
            "heads": 8,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "dropout": 0.1,
        },
        "training": {
            "batch_tokens": 8192,
            "accumulate": 2,
            "learning_rate": 7e-4,
            "warmup": 4000,
            "steps": 100_000,
        },
    },
    "big": {
        "tokenizer": {"vocabulary": 32_000},
        "model": {
            "width": 1024,
            "hidden": 4096,
            "heads": 16,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "dropout": 0.3,
        },
        "training": {
            "batch_tokens": 8192,
            "accumulate": 4,
            "learning_rate": 5e-4,
            "warmup": 4000,
            "steps": 300_000,
        },
    },
}


def choose_preset(pairs: int, device: str) -> tuple[str, str]:
    """The preset for a corpus of so many pairs, and the reason in words."""
    limits = {"tiny": 50_000, "small": 500_000, "base": 5_000_000}
    name = next((preset for preset, limit in limits.items() if pairs < limit), "big")
    reason = f"{pairs:,} pairs" + (f" are fewer than {limits[name]:,}" if name in limits else "")
    if name in ("base", "big") and device == "cpu":
        return "small", f"{reason}, which asks for {name}, but on a CPU that would take weeks"
    return name, reason


def load(path: Path | None = None, overrides: Mapping[str, Any] | None = None, preset: str | None = None) -> Settings:
    """Settings from the defaults, the preset, the TOML file and dotted overrides: later wins."""
    return resolve(gather(path, overrides), preset)


def gather(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the user says, as nested tables: the TOML file, and dotted overrides on top."""
    given = {} if path is None else read_toml(path)
    for dotted, value in (overrides or {}).items():
        *parents, leaf = dotted.split(".")
        node = given
        for name in parents:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise SettingsError(f"unknown setting {dotted}")
        node[leaf] = value
    return given


def resolve(given: Mapping[str, Any], preset: str | None = None) -> Settings:
    """What the user says on top of a preset: the one they name or, where they say auto or nothing, `preset`."""
    named = given.get("preset", "auto")
    chosen = preset if named == "auto" and preset is not None else named
    under = PRESETS.get(chosen, {}) if isinstance(chosen, str) else {}
    return build(Settings, {**merge(under, given), "preset": chosen})


def recorded(path: Path) -> Settings:
    """The settings that a model folder records: complete, so no preset is laid under them."""
    return build(Settings, read_toml(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    return tables
