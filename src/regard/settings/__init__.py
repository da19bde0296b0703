"""Declares every setting of Regard once.

`option_fields.py` derives TOML keys, flags and checks from these declarations, `recorded_settings.py` reads the
settings of a model folder, and `preparation/chosen_settings.py` combines defaults, presets, files and flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from regard.errors import SettingsError
from regard.settings import recurrent_networks
from regard.settings.option_fields import CHANCE, HUGE, SHARE, Bounds, Section, at_least


@dataclass(frozen=True, kw_only=True)
class DataSettings(Section):
    """The corpus: its languages, and which parts of it to use."""

    source: Annotated[str, "source language, e.g. en"] = "source"
    target: Annotated[str, "target language, e.g. de"] = "target"
    directions: Annotated[
        tuple[str, ...],
        "directions of a multilingual model, e.g. en-de,en-fr,de-en (Johnson et al., 2017); empty: only source to target",
    ] = ()
    dev_pairs: Annotated[
        int | None,
        "number of pairs per direction (or of texts) to hold out if there are no dev files; none: depends on corpus size",
        at_least(1, HUGE),
    ] = None
    documents: Annotated[
        Literal["file", "paragraph", "line"],
        "what counts as one document (write, fill); blank lines separate paragraphs, and the line <|endoftext|> always ends a document",
    ] = "file"
    carrier: Annotated[Literal["text", "word"], "whether labels apply to whole texts or single words (classify)"] = (
        "text"
    )
    labels: Annotated[tuple[str, ...], "labels of a classifier; filled in from the training data"] = ()
    memory: Annotated[
        Literal["auto", "on", "off"],
        "keep the training pairs for --memory; auto: if they come from PO, MO, TMX or XLIFF files",
    ] = "auto"
    max_characters: Annotated[int, "maximum characters per side; longer pairs are dropped", at_least(1, HUGE)] = 2000
    protect: Annotated[
        Literal["auto", "on", "off"], "learn to copy placeholders and tags; auto: if the corpus has .po or .tmx files"
    ] = "auto"
    undecodable: Annotated[Literal["error", "drop"], "what to do with lines that are not valid UTF-8"] = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.directions:
            match = re.fullmatch(r"(\w+)-(\w+)", name)
            if match is None or match[1] == match[2]:
                raise SettingsError(
                    f"data.directions: {name!r} is not a direction: write two languages joined by one hyphen, such as "
                    "en-de; a region or script follows an underscore, as in en-pt_BR"
                )
            if self.directions.count(name) > 1:
                raise SettingsError(f"data.directions: {name} is listed twice: remove one of them")


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(Section):
    """The subword vocabulary and how it is learned."""

    kind: Annotated[
        Literal["bpe", "unigram"], "byte-pair encoding (Sennrich et al., 2016) or unigram language model (Kudo, 2018)"
    ] = "bpe"
    vocabulary: Annotated[int, "vocabulary size, including special tokens and bytes", at_least(300, HUGE)] = 10_000
    joint: Annotated[bool, "share one vocabulary between source and target"] = True
    sample: Annotated[int, "number of sentences per side used to learn the vocabulary", at_least(1, HUGE)] = 500_000
    tags: Annotated[tuple[str, ...], "special tokens that mark sources; filled in when needed"] = ()


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Section):
    """The shape of the Transformer; the defaults are the base model of Vaswani et al. (2017)."""

    width: Annotated[int, "width of the residual stream (d_model)", at_least(1)] = 512
    heads: Annotated[int, "number of attention heads", at_least(1)] = 8
    key_value_heads: Annotated[
        int | None, "number of key and value heads (grouped-query attention); none: same as heads", at_least(1)
    ] = None
    key_width: Annotated[int | None, "query and key width of a head (d_k); none: width / heads", at_least(1)] = None
    value_width: Annotated[int | None, "value width of a head (d_v); none: width / heads", at_least(1)] = None
    hidden: Annotated[int, "width of the feed-forward layer (d_ff)", at_least(1)] = 2048
    encoder_layers: Annotated[int, "number of encoder layers", at_least(1, 500)] = 6
    decoder_layers: Annotated[int, "number of decoder layers", at_least(1, 500)] = 6
    norm: Annotated[Literal["post", "pre"], "normalize after residual sums (post) or before sublayers (pre)"] = "post"
    norm_kind: Annotated[Literal["layer", "rms"], "LayerNorm, or RMSNorm (Zhang & Sennrich, 2019)"] = "layer"
    norm_epsilon: Annotated[float, "constant added to the variance for numerical stability", SHARE] = 1e-5
    activation: Annotated[
        Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"], "activation function of the feed-forward layer"
    ] = "relu"
    positions: Annotated[
        Literal["sinusoidal", "sinusoidal-halves", "learned", "rotary", "none"],
        "position encoding; sinusoidal interleaves sines and cosines, sinusoidal-halves separates them (tensor2tensor, Marian)",
    ] = "sinusoidal"
    rotary_base: Annotated[float, "base of the rotary frequencies, theta (Su et al., 2021)", Bounds(1, 1e30)] = 10_000.0
    max_length: Annotated[int, "maximum sequence length in tokens", at_least(2)] = 256
    tie: Annotated[
        Literal["all", "output", "inputs", "none"],
        "which embedding tables share weights: source, target and output (all), target and output (output), source and target (inputs)",
    ] = "all"
    scale_embedding: Annotated[bool, "multiply token embeddings by sqrt(width)"] = True
    embedding_norm: Annotated[bool, "normalize the embeddings, as BERT does"] = False
    segments: Annotated[int, "number of segment embeddings (BERT has 2)", at_least(0)] = 0
    bias: Annotated[bool, "add biases to the linear layers of attention and feed-forward"] = True
    output_bias: Annotated[bool, "add a bias to the output layer"] = False
    pooler: Annotated[
        Literal["none", "tanh", "relu", "mean"],
        "what represents a whole text: its first state (none), that state after a tanh or relu layer, or the mean of all states",
    ] = "none"
    next_sentence: Annotated[bool, "add BERT's head that predicts whether one text follows another"] = False
    dropout: Annotated[float, "dropout rate of sublayer outputs", CHANCE] = 0.1
    embedding_dropout: Annotated[float | None, "dropout rate of embeddings; none: same as dropout", CHANCE] = None
    attention_dropout: Annotated[float, "dropout rate of attention weights", CHANCE] = 0.0
    activation_dropout: Annotated[float, "dropout rate inside the feed-forward layer", CHANCE] = 0.0
    kind: Annotated[
        Literal["transformer", "lstm", "gru"],
        "architecture: Transformer, or a recurrent network for comparison (no feed-forward layers, norms or positions)",
    ] = "transformer"
    attends: Annotated[bool, "recurrent only: attend to the source; false: pass only the encoder's last state"] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.key_width is None or self.value_width is None) and self.width % self.heads:
            raise SettingsError(
                f"model.width {self.width} is not divisible by model.heads {self.heads}: "
                "change one of them or set model.key_width and model.value_width"
            )
        if self.heads % self.query_groups:
            raise SettingsError(
                f"model.heads {self.heads} is not divisible by model.key_value_heads {self.key_value_heads}: "
                "change one of them"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise SettingsError(
                f"model.positions = rotary needs an even key width per head, not {self.head_width}: "
                "change model.width or model.heads, or set model.key_width"
            )
        if self.next_sentence and self.pooler == "none":
            raise SettingsError("model.next_sentence needs a pooler: set model.pooler to tanh")
        if self.positions.startswith("sinusoidal") and self.width % 2:
            raise SettingsError(f"model.positions = {self.positions} needs an even model.width, not {self.width}")

    @property
    def head_width(self) -> int:
        return self.key_width or self.width // self.heads

    @property
    def head_value_width(self) -> int:
        return self.value_width or self.width // self.heads

    @property
    def query_groups(self) -> int:
        """The number of key and value heads, each of which serves a group of query heads."""
        return self.key_value_heads or self.heads


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Section):
    """Training settings: batches, learning rate, regularization, evaluation, devices."""

    steps: Annotated[int, "maximum number of weight updates", at_least(1, HUGE)] = 20_000
    batch_tokens: Annotated[int, "target tokens per batch over all processes, including padding", at_least(1, HUGE)] = (
        4096
    )
    accumulate: Annotated[int, "number of batches whose gradients are summed for one update", at_least(1)] = 1
    parallel: Annotated[
        Literal["ddp", "fsdp"],
        "what each process stores: all weights (ddp), or a shard of the weights, gradients and optimizer state (fsdp)",
    ] = "ddp"
    recompute: Annotated[
        bool,
        "recompute activations in the backward pass instead of storing them: less memory, a third more time (Chen et al., 2016)",
    ] = False
    timeout: Annotated[int, "seconds without a response after which a process counts as lost", at_least(1, HUGE)] = 1800
    restarts: Annotated[int, "how many times --processes restarts training after losing a process", at_least(0)] = 3
    optimizer: Annotated[Literal["adam", "muon"], "Adam, or Muon for weight matrices (Jordan et al., 2024)"] = "adam"
    learning_rate: Annotated[float, "peak learning rate", at_least(0)] = 1e-3
    table_rate: Annotated[float, "with Muon: rate of all other weights, relative to learning_rate", at_least(0)] = 4.0
    schedule: Annotated[
        Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"],
        "learning rate schedule after warm-up; paper: width^-0.5 min(step^-0.5, step warmup^-1.5), which ignores learning_rate",
    ] = "inverse-sqrt"
    warmup: Annotated[int, "number of updates during which the learning rate rises", at_least(0, HUGE)] = 1000
    dropout_warmup: Annotated[float, "epochs in which dropout rises from 0 (Morerio et al., 2017)", at_least(0)] = 0.0
    betas: Annotated[tuple[float, ...], "Adam's decay rates of the first and second moment", CHANCE] = (0.9, 0.98)
    epsilon: Annotated[float, "constant added to Adam's denominator for numerical stability", at_least(0)] = 1e-9
    weight_decay: Annotated[float, "decoupled weight decay (AdamW); with Muon: for matrices only", at_least(0)] = 0.0
    clip: Annotated[float, "maximum norm of the gradient; 0: no clipping", at_least(0)] = 1.0
    masked: Annotated[float, "share of tokens to mask and predict (fill; Devlin et al., 2019)", Bounds(0.01, 0.9)] = (
        0.15
    )
    whole_words: Annotated[bool, "mask whole words instead of single tokens (fill)"] = False
    label_smoothing: Annotated[float, "probability spread over all tokens (Szegedy et al., 2016)", CHANCE] = 0.1
    subword_sampling: Annotated[
        float,
        "probability of skipping each BPE merge, with new segmentations in every epoch (Provilkov et al., 2020; unigram: Kudo, 2018); 0: off",
        Bounds(0, 0.9),
    ] = 0.0
    ema: Annotated[
        float,
        "decay of a moving average of the weights, which replaces them in evaluation and saved models (Polyak & Juditsky, 1992); 0: off",
        CHANCE,
    ] = 0.0
    evaluate_every: Annotated[
        int, "number of updates between evaluations, each of which saves a checkpoint", at_least(1, HUGE)
    ] = 500
    evaluate_pairs: Annotated[int, "number of dev pairs translated at each evaluation", at_least(1, HUGE)] = 500
    metric: Annotated[
        Literal["chrf", "bleu", "loss", "accuracy", "f1"],
        "dev metric for early stopping: chrf or bleu of translations, accuracy or f1 of labels, or the loss",
    ] = "chrf"
    patience: Annotated[int, "evaluations without improvement before training stops; 0: never stop", at_least(0)] = 8
    average: Annotated[int, "number of best checkpoints averaged into the final weights", at_least(1)] = 5
    history: Annotated[int, "number of snapshots of the weights to keep for regard look; 0: none", at_least(0)] = 0
    adapters: Annotated[int, "with --from: rank of adapters (LoRA; Hu et al., 2021); 0: off", at_least(0)] = 0
    seed: Annotated[int, "random seed, for reproducible runs", at_least(0, HUGE)] = 1
    device: Annotated[str, "device to train on: auto, cpu, cuda, cuda:1, mps ..."] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        "number format of matrix products (weights stay float32); auto: bfloat16 if it is faster on this CPU or GPU",
    ] = "float32"
    threads: Annotated[int | None, "number of CPU threads of all processes; none: all cores", at_least(1)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2:
            raise SettingsError(f"training.betas must be two numbers, not {len(self.betas)}")


@dataclass(frozen=True, kw_only=True)
class DecodingSettings(Section):
    """Settings of search and sampling."""

    beam: Annotated[int, "beam size; 1: greedy search", at_least(1, 10_000)] = 5
    length_penalty: Annotated[float, "alpha of the length penalty; higher: longer outputs", Bounds(0, 10)] = 0.6
    penalty: Annotated[
        Literal["google", "power"],
        "form of the length penalty: ((5 + length) / 6) ^ alpha (Wu et al., 2016), or length ^ alpha (Marian, Hugging Face)",
    ] = "google"
    patience: Annotated[
        float,
        "stop once patience * beam outputs are complete (Kasai et al., 2022); 0: stop when no better output is possible",
        at_least(0),
    ] = 1.0
    consensus: Annotated[
        int,
        "minimum Bayes risk: generate N candidates, return the one closest to all others (Kumar & Byrne, 2004); 0: off",
        at_least(0),
    ] = 0
    alternatives: Annotated[int, "number of other translations to return besides the best", at_least(0)] = 0
    alignment: Annotated[bool, "return each token's attention to the source tokens, from the last layer"] = False
    temperature: Annotated[float, "0: search; above 0: sample, more randomly with higher values", at_least(0)] = 0.0
    top_k: Annotated[int, "sample only among the k most probable tokens; 0: all", at_least(0, HUGE)] = 0
    top_p: Annotated[float, "sample among the most probable tokens with this total probability; 1: all", SHARE] = 1.0
    min_p: Annotated[float, "sample among tokens with at least this share of the highest probability", SHARE] = 0.0
    repetition_penalty: Annotated[
        float, "penalty for repeated tokens (Keskar et al., 2019); 1: off", Bounds(0.01, 100)
    ] = 1.0
    seed: Annotated[int, "random seed, for reproducible samples", at_least(0, HUGE)] = 0
    max_tokens: Annotated[int, "maximum length of a continuation in tokens (write)", at_least(1, HUGE)] = 256
    max_ratio: Annotated[float, "maximum number of output tokens per source token, plus 20", at_least(0)] = 2.0
    batch_tokens: Annotated[
        int, "number of source tokens decoded together, with padding and beams", at_least(1, HUGE)
    ] = 8192


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(Section):
    """Settings of text embeddings."""

    pooling: Annotated[Literal["mean", "first"], "vector of a text: mean of all states, or first state"] = "mean"
    normalize: Annotated[bool, "scale vectors to length 1, so that their dot product is their cosine similarity"] = True


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """All settings of one model and its training, as model.toml records them.

    >>> settings = regard.load("runs/en-de").settings
    >>> settings.data.source, settings.model.width
    """

    task: Annotated[
        Literal["translate", "write", "fill", "classify", "embed"],
        "what the model does: translate, continue text (GPT), fill gaps (BERT), label texts, or embed them as vectors",
    ] = "translate"
    preset: Annotated[
        Literal["auto", "tiny", "small", "base", "big", "modern"],
        "size of the model; auto: depends on corpus size and device",
    ] = "auto"
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.tie in ("all", "inputs") and not self.tokenizer.joint:
            raise SettingsError(
                f"model.tie = {self.model.tie} shares the source and target tables, which needs "
                "tokenizer.joint = true: set model.tie to output or none"
            )
        if self.data.directions and not self.tokenizer.joint:
            raise SettingsError("data.directions needs one vocabulary for all languages: set tokenizer.joint to true")
        if self.model.kind != "transformer":
            recurrent_networks.require_supported(self)
        elif not self.model.attends:
            raise SettingsError("model.attends = false needs a recurrent network: set model.kind to lstm or gru")

    @property
    def layers(self) -> str:
        """The number of layers of a model for this task, such as "6" or "6 + 6"."""
        encoder, decoder = self.model.encoder_layers, self.model.decoder_layers
        return {"translate": f"{encoder} + {decoder}", "write": str(decoder)}.get(self.task, str(encoder))

    @property
    def shape(self) -> str:
        """A one-line description of the model's size."""
        model = self.model
        if model.kind != "transformer":
            return recurrent_networks.describe_shape(self)
        return f"{self.layers} layers, width {model.width}, feed-forward {model.hidden}, {model.heads} heads"
