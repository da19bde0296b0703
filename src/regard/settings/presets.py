"""Declares what each task changes in the defaults, and presets of several sizes for each task."""

from __future__ import annotations

from typing import Any

Tables = dict[str, Any]

TASKS: dict[str, Tables] = {
    "translate": {},
    # Radford et al. (2019) and, for the optimizer, Brown et al. (2020).
    "write": {
        "model": {
            "norm": "pre",
            "activation": "gelu-tanh",
            "positions": "learned",
            "scale_embedding": False,
            "tie": "output",
        },
        "training": {
            "schedule": "cosine",
            "betas": [0.9, 0.95],
            "epsilon": 1e-8,
            "weight_decay": 0.1,
            "label_smoothing": 0.0,
            "metric": "loss",
            "average": 1,
        },
        "decoding": {"beam": 1, "temperature": 0.8, "length_penalty": 0.0},
    },
    # Devlin et al. (2019); without next-sentence prediction, as Liu et al. (2019) found better.
    "fill": {
        "model": {
            "norm": "post",
            "norm_epsilon": 1e-12,
            "activation": "gelu",
            "positions": "learned",
            "scale_embedding": False,
            "embedding_norm": True,
            "segments": 2,
            "pooler": "tanh",
            "tie": "output",
        },
        "training": {
            "schedule": "linear",
            "betas": [0.9, 0.98],
            "epsilon": 1e-6,
            "weight_decay": 0.01,
            "label_smoothing": 0.0,
            "metric": "loss",
            "average": 1,
        },
    },
}
TASKS["classify"] = {
    "data": {"max_characters": 100_000},  # long texts are truncated, not dropped
    "model": {**TASKS["fill"]["model"], "pooler": "mean"},  # small models learn better with it (docs/log.md)
    "training": {**TASKS["fill"]["training"], "metric": "accuracy"},
}
TASKS["embed"] = {"model": TASKS["fill"]["model"]}

# What has become usual since GPT-2: RMSNorm, rotary positions, SwiGLU, no biases (Touvron et al., 2023), and key and
# value heads that several query heads share (Ainslie et al., 2023).
LLAMA: Tables = {"norm_kind": "rms", "positions": "rotary", "activation": "swiglu", "bias": False}

PRE_NORM: Tables = {**LLAMA, "norm": "pre", "norm_epsilon": 1e-6, "embedding_norm": False}

# How small translators learn fastest (docs/log.md): the paper's model in Llama's arrangement, with biases.
SMALL_DATA: Tables = {"norm": "pre", "norm_kind": "rms", "positions": "rotary", "activation": "swiglu"}

FEW_PAIRS: Tables = {
    "optimizer": "muon",
    "learning_rate": 3e-3,
    "betas": (0.9, 0.999),
    "schedule": "cosine",
    "warmup": 400,
    "ema": 0.999,
    "subword_sampling": 0.05,
    "evaluate_every": 500,
    "precision": "auto",
}

GPU_TRAINING: Tables = {
    "batch_tokens": 16_384,
    "accumulate": 30,
    "learning_rate": 6e-4,
    "warmup": 2000,
    "steps": 100_000,
}

LARGE_CORPUS: Tables = {"batch_tokens": 8192, "warmup": 4000}


def shape(vocabulary: int, width: int, hidden: int, heads: int, **others: Any) -> Tables:
    """Returns the tables that set a vocabulary and the shape of a model."""
    model = {**others, "width": width, "hidden": hidden, "heads": heads}
    return {"tokenizer": {"vocabulary": vocabulary}, "model": model}


PRESETS: dict[str, dict[str, Tables]] = {
    "translate": {
        # Wu et al. (2021) found this depth and width best on 29,000 pairs; all else is measured (docs/quality.md).
        "tiny": {
            **shape(
                6_000, 128, 176, 4, encoder_layers=4, decoder_layers=4, dropout=0.3, embedding_norm=True, **SMALL_DATA
            ),
            "training": {
                **FEW_PAIRS,
                "batch_tokens": 1024,
                "weight_decay": 0.2,
                "dropout_warmup": 10.0,
                "steps": 16_000,
            },
        },
        # The same, larger, for text that is seen less often; measured for a third of an hour only (docs/log.md).
        "small": {
            **shape(12_000, 256, 704, 4, encoder_layers=4, decoder_layers=4, dropout=0.2, **SMALL_DATA),
            "training": {**FEW_PAIRS, "batch_tokens": 2048, "dropout_warmup": 5.0, "steps": 20_000},
        },
        "base": {
            **shape(32_000, 512, 2048, 8, encoder_layers=6, decoder_layers=6, dropout=0.1),
            "training": {**LARGE_CORPUS, "accumulate": 2, "learning_rate": 7e-4, "steps": 100_000},
        },
        "big": {
            **shape(32_000, 1024, 4096, 16, encoder_layers=6, decoder_layers=6, dropout=0.3),
            "training": {**LARGE_CORPUS, "accumulate": 4, "learning_rate": 5e-4, "steps": 300_000},
        },
    },
    "write": {
        # Small models learn much faster in Llama's arrangement than in GPT-2's (docs/log.md).
        "tiny": {
            **shape(1_000, 192, 512, 6, key_value_heads=2, decoder_layers=4, max_length=128, dropout=0.1, **LLAMA),
            "training": {"batch_tokens": 1024, "learning_rate": 2e-3, "warmup": 100, "steps": 4500},
        },
        "small": {
            **shape(8_000, 320, 864, 5, key_value_heads=1, decoder_layers=6, max_length=256, dropout=0.1, **LLAMA),
            "training": {"batch_tokens": 4096, "learning_rate": 1e-3, "warmup": 500, "steps": 20_000},
        },
        # GPT-2 small
        "base": {
            **shape(50_000, 768, 3072, 12, decoder_layers=12, max_length=1024, dropout=0.0),
            "training": GPU_TRAINING,
        },
        # the size of GPT-2 small in Llama's arrangement
        "modern": {
            **shape(50_000, 768, 2048, 12, key_value_heads=4, decoder_layers=12, max_length=1024, dropout=0.0, **LLAMA),
            "training": GPU_TRAINING,
        },
    },
    "fill": {
        # In Llama's arrangement too: BERT's long predicts nothing but the most common words (docs/log.md).
        "tiny": {
            **shape(8_000, 128, 352, 4, encoder_layers=4, max_length=128, **PRE_NORM),
            "training": {"batch_tokens": 4096, "learning_rate": 2e-3, "warmup": 200, "steps": 10_000},
        },
        "small": {
            **shape(16_000, 256, 704, 4, encoder_layers=4, max_length=128, **PRE_NORM),
            "training": {"batch_tokens": 8192, "learning_rate": 1e-3, "warmup": 2000, "steps": 50_000},
        },
        # BERT base
        "base": {
            **shape(30_000, 768, 3072, 12, encoder_layers=12, max_length=512),
            "training": {
                "batch_tokens": 16_384,
                "accumulate": 4,
                "learning_rate": 4e-4,
                "warmup": 10_000,
                "steps": 300_000,
            },
        },
    },
}
LABEL_TRAINING: dict[str, Tables] = {
    "tiny": {"batch_tokens": 2048, "learning_rate": 5e-4, "warmup": 200, "steps": 4000, "evaluate_every": 100},
    "small": {"batch_tokens": 4096, "learning_rate": 3e-4, "warmup": 500, "steps": 20_000},
}
PRESETS["classify"] = {name: {**PRESETS["fill"][name], "training": table} for name, table in LABEL_TRAINING.items()}
NAMES = {name for presets in PRESETS.values() for name in presets}

FINE_TUNING: Tables = {
    "training": {
        "batch_tokens": 2048,
        "learning_rate": 5e-5,
        "schedule": "linear",
        "steps": 10_000,
        "average": 1,
    },
}
"""Settings for a model that starts from another one's weights: a low learning rate and few epochs (`settle_steps`)."""

LIMITS = {  # the largest corpus of each size: pairs, characters or labelled texts
    "translate": {"tiny": 50_000, "small": 500_000, "base": 5_000_000, "big": None},
    "write": {"tiny": 5_000_000, "small": 2_000_000_000, "base": None},
    "fill": {"tiny": 50_000_000, "small": 2_000_000_000, "base": None},
    "classify": {"tiny": 100_000, "small": None},
}
UNITS = {"translate": "pairs", "write": "characters", "fill": "characters", "classify": "labelled texts"}


def choose_preset(task: str, size: int, device: str) -> tuple[str, str]:
    """Returns the preset for a corpus of `size` pairs, characters or labelled texts, and the reason in words."""
    limits, unit = LIMITS[task], UNITS[task]
    name = next(preset for preset, limit in limits.items() if limit is None or size < limit)
    reason = f"{size:,} {unit}" + (f" are fewer than {limits[name]:,}" if limits[name] else "")
    if name in ("base", "big") and device == "cpu":
        return "small", f"{reason}, for which {name} is recommended, but on a CPU that would take weeks"
    return name, reason
