"""Every option of Regard, declared once.

`options.py` makes keys, flags and checks of a declaration; `configuration.py` puts together what a user, a preset and
a task say of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from regard.errors import SettingsError
from regard.settings.option_fields import CHANCE, SHARE, Bounds, Section, at_least


@dataclass(frozen=True, kw_only=True)
class DataSettings(Section):
    """What the text is and which of it is used."""

    source: Annotated[str, "language of the source side, e.g. en"] = "source"
    target: Annotated[str, "language of the target side, e.g. de"] = "target"
    directions: Annotated[
        tuple[str, ...],
        "several directions in one model, e.g. en-de,en-fr,de-en (Johnson et al., 2017); none: from source to target",
    ] = ()
    dev_pairs: Annotated[
        int | None,
        "pairs (of each direction) or labelled texts split off as dev set when none is given; none: by corpus size",
        at_least(1),
    ] = None
    documents: Annotated[
        Literal["file", "paragraph", "line"],
        "what a document is in a text file (write, fill): the whole file, what stands between blank lines, or a line; a line <|endoftext|> always ends one",
    ] = "file"
    carrier: Annotated[Literal["text", "word"], "what has a label (classify)"] = "text"
    labels: Annotated[tuple[str, ...], "the labels of a classifier; filled in from its data"] = ()
    memory: Annotated[Literal["auto", "on", "off"], "keep the pairs for --memory; auto: of PO, MO, TMX, XLIFF"] = "auto"
    max_characters: Annotated[int, "pairs with a longer side are dropped", at_least(1)] = 2000
    protect: Annotated[Literal["auto", "on", "off"], "slots for placeholders and tags; auto: with .po, .tmx"] = "auto"
    undecodable: Annotated[Literal["error", "drop"], "what to do with a line that is not UTF-8"] = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.directions:
            found = re.fullmatch(r"(\w+)-(\w+)", name)
            if found is None or found[1] == found[2]:
                raise SettingsError(
                    f"data.directions: {name!r} is not a direction: write two languages with one hyphen between, such "
                    "as en-de; a region or a script goes after an underscore, as in en-pt_BR"
                )
            if self.directions.count(name) > 1:
                raise SettingsError(f"data.directions: {name} is there twice")


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(Section):
    """How text is cut into subwords."""

    kind: Annotated[
        Literal["bpe", "unigram"], "byte-pair merges (Sennrich et al., 2016) or unigram pieces (Kudo, 2018)"
    ] = "bpe"
    vocabulary: Annotated[int, "token types, special tokens and bytes included", at_least(300)] = 10_000
    joint: Annotated[bool, "one vocabulary for both languages"] = True
    sample: Annotated[int, "sentences of each side that the tokenizer learns from", at_least(1)] = 500_000
    tags: Annotated[
        tuple[str, ...], "marks that no text can spell, one token each, put before a source; filled in where needed"
    ] = ()


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
    norm_epsilon: Annotated[float, "added to the variance", SHARE] = 1e-5
    activation: Annotated[
        Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"], "nonlinearity of the feed-forward layer"
    ] = "relu"
    positions: Annotated[
        Literal["sinusoidal", "sinusoidal-halves", "learned", "rotary", "none"],
        "how order is told: sines and cosines interleaved (the paper) or in two halves (tensor2tensor, Marian), a learned table, rotary (Su et al., 2021)",
    ] = "sinusoidal"
    rotary_base: Annotated[float, "longest wavelength of rotary positions, over 2 pi", Bounds(1, 1e30)] = 10_000.0
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
    pooler: Annotated[
        Literal["none", "tanh", "relu", "mean"],
        "what a whole text is judged on: the first position's state, that state after a layer with this nonlinearity (BERT: tanh), or the mean of all states",
    ] = "none"
    next_sentence: Annotated[bool, "a head that tells whether one text follows another (BERT)"] = False
    dropout: Annotated[float, "dropout of sublayer outputs", CHANCE] = 0.1
    embedding_dropout: Annotated[float | None, "dropout of embeddings; none: as dropout", CHANCE] = None
    attention_dropout: Annotated[float, "dropout of attention weights", CHANCE] = 0.0
    activation_dropout: Annotated[float, "dropout inside the feed-forward layer", CHANCE] = 0.0
    kind: Annotated[
        Literal["transformer", "lstm", "gru"],
        "the Transformer, or a recurrent network to compare it with, which has no feed-forward, norms and positions",
    ] = "transformer"
    attends: Annotated[
        bool, "a recurrent decoder looks at the source; false: all it knows is how the encoder ended"
    ] = True

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
        if self.kind == "transformer" and not self.attends:
            raise SettingsError("model.attends = false is for a recurrent network: set model.kind to lstm or gru")
        if self.recurrent and self.width % 2:
            raise SettingsError(
                f"a recurrent encoder reads in two directions: model.width must be even, not {self.width}"
            )
        if self.next_sentence and self.pooler == "none":
            raise SettingsError("model.next_sentence judges whole texts: set model.pooler to tanh")
        if self.positions.startswith("sinusoidal") and self.width % 2:
            raise SettingsError(f"sinusoidal positions come in pairs: model.width must be even, not {self.width}")

    @property
    def recurrent(self) -> bool:
        """Whether it reads one token after the other, and not all at once."""
        return self.kind != "transformer"

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
    batch_tokens: Annotated[int, "target tokens of a batch, padding included, of all processes", at_least(1)] = 4096
    accumulate: Annotated[int, "batches whose gradients are summed for one update", at_least(1)] = 1
    parallel: Annotated[
        Literal["ddp", "fsdp"],
        "what several processes hold: each all weights (ddp), or each a part of weights, gradients and moments (fsdp)",
    ] = "ddp"
    recompute: Annotated[
        bool,
        "compute what is inside a layer again in the backward pass instead of keeping it: less memory, a third more time (Chen et al., 2016)",
    ] = False
    timeout: Annotated[int, "seconds after which another process that says nothing counts as lost", at_least(1)] = 1800
    restarts: Annotated[int, "times that --processes starts over when a process is lost", at_least(0)] = 3
    optimizer: Annotated[Literal["adam", "muon"], "Adam, or Muon for matrices (Jordan et al., 2024)"] = "adam"
    learning_rate: Annotated[float, "highest learning rate", at_least(0)] = 1e-3
    table_rate: Annotated[
        float,
        "times that rate for what Adam moves beside Muon: norms, biases and, above all, tables of tokens, of which an update asks for few rows",
        at_least(0),
    ] = 4.0
    schedule: Annotated[
        Literal["paper", "inverse-sqrt", "cosine", "linear", "constant"],
        "course of the learning rate after warm-up; paper: width^-0.5 min(step^-0.5, step warmup^-1.5), whatever learning_rate says",
    ] = "inverse-sqrt"
    warmup: Annotated[int, "updates in which the learning rate rises", at_least(0)] = 1000
    dropout_warmup: Annotated[
        float,
        "epochs in which dropout rises from nothing to its rates (Morerio et al., 2017); 0: it has them from the first update",
        at_least(0),
    ] = 0.0
    betas: Annotated[tuple[float, ...], "Adam's decay rates of the two moments", CHANCE] = (0.9, 0.98)
    epsilon: Annotated[float, "Adam's term against division by zero", at_least(0)] = 1e-9
    weight_decay: Annotated[float, "decoupled weight decay (AdamW); with Muon, of matrices alone", at_least(0)] = 0.0
    clip: Annotated[float, "largest norm of the gradient; 0: no limit", at_least(0)] = 1.0
    masked: Annotated[float, "share of the tokens that fill has to guess (Devlin et al., 2019)", Bounds(0.01, 0.9)] = (
        0.15
    )
    whole_words: Annotated[bool, "fill guesses whole words, not pieces of them"] = False
    label_smoothing: Annotated[float, "probability spread over all tokens (Szegedy et al., 2016)", CHANCE] = 0.1
    subword_sampling: Annotated[
        float,
        "chance that a merge is left out when pairs are cut anew each epoch (Provilkov et al., 2020; for unigram: Kudo, 2018); 0: always the same cut",
        Bounds(0, 0.9),
    ] = 0.0
    ema: Annotated[
        float,
        "decay of the running mean of the weights (Polyak & Juditsky, 1992) that is evaluated and kept in their place; 0: none",
        CHANCE,
    ] = 0.0
    evaluate_every: Annotated[
        int, "updates between evaluations on the dev set, each with a checkpoint", at_least(1)
    ] = 500
    evaluate_pairs: Annotated[int, "dev pairs translated at each evaluation", at_least(1)] = 500
    metric: Annotated[
        Literal["chrf", "bleu", "loss", "accuracy", "f1"],
        "what early stopping watches: chrf or bleu of translations, accuracy or f1 of labels, or the loss",
    ] = "chrf"
    patience: Annotated[
        int,
        "evaluations without improvement before training stops, once it has warmed up; 0: never stop early",
        at_least(0),
    ] = 8
    average: Annotated[
        int, "checkpoints averaged into the final weights, the best and those around it", at_least(1)
    ] = 5
    history: Annotated[
        int,
        "snapshots of the weights kept along the way for later looks, from before the first update to after the last; 0: none",
        at_least(0),
    ] = 0
    adapters: Annotated[
        int,
        "rank of adapters that learn in place of the weights (LoRA; Hu et al., 2021), with --from; 0: none",
        at_least(0),
    ] = 0
    seed: Annotated[int, "makes a run reproducible", at_least(0)] = 1
    device: Annotated[str, "auto, cpu, cuda, cuda:1, mps ..."] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        "type of the products; the weights stay float32; auto: bfloat16 on CPUs and GPUs that multiply it faster, else float32",
    ] = "float32"
    threads: Annotated[int | None, "CPU threads, shared by the processes; none: all cores", at_least(1)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2:
            raise SettingsError(f"training.betas must be two numbers, not {len(self.betas)}")


@dataclass(frozen=True, kw_only=True)
class DecodingSettings(Section):
    """How text is produced."""

    beam: Annotated[int, "hypotheses kept at each step; 1: greedy", at_least(1)] = 5
    length_penalty: Annotated[float, "alpha, by which longer outputs are favoured; 0: not at all", Bounds(0, 10)] = 0.6
    penalty: Annotated[
        Literal["google", "power"],
        "form of the length penalty: ((5 + length) / 6) ^ alpha (Wu et al., 2016), or length ^ alpha (Marian, Hugging Face)",
    ] = "google"
    patience: Annotated[
        float,
        "a beam search ends when it has found so many times `beam` outputs (Kasai et al., 2022); 0: when no better one can come",
        at_least(0),
    ] = 1.0
    consensus: Annotated[
        int,
        "of so many outputs of a beam as wide, take the one most like all of them (minimum Bayes risk, Kumar & Byrne, 2004); 0: the best",
        at_least(0),
    ] = 0
    alternatives: Annotated[int, "further translations given beside the best", at_least(0)] = 0
    alignment: Annotated[bool, "tell what each token looked at in the source, by the last layer"] = False
    temperature: Annotated[
        float, "0: search for the most probable; above: draw, the higher the wilder", at_least(0)
    ] = 0.0
    top_k: Annotated[int, "draw among the k most probable tokens; 0: all", at_least(0)] = 0
    top_p: Annotated[float, "draw among the most probable tokens that make up this probability", SHARE] = 1.0
    min_p: Annotated[float, "draw among tokens at least this probable, relative to the most probable", SHARE] = 0.0
    repetition_penalty: Annotated[
        float, "makes tokens that were there before less likely (Keskar et al., 2019); 1: not at all", Bounds(0.01, 100)
    ] = 1.0
    seed: Annotated[int, "makes drawing reproducible", at_least(0)] = 0
    max_tokens: Annotated[int, "longest continuation of a text, in tokens", at_least(1)] = 256
    max_ratio: Annotated[float, "longest output, as a multiple of the source's tokens (plus 20)", at_least(0)] = 2.0
    batch_tokens: Annotated[int, "source tokens decoded together, padding and beams included", at_least(1)] = 8192


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(Section):
    """How a text becomes one vector."""

    pooling: Annotated[Literal["mean", "first"], "the mean of the states of all tokens, or the state of the first"] = (
        "mean"
    )
    normalize: Annotated[bool, "vectors have length 1, so that their product is the cosine"] = True


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """All settings of one model and its training; what model.toml holds.

    >>> settings = regard.load("runs/en-de").settings
    >>> settings.data.source, settings.model.width
    """

    task: Annotated[
        Literal["translate", "write", "fill", "classify", "embed"],
        "what the model is for: to translate, to continue text (GPT), to fill gaps (BERT), to label, or to turn text into vectors",
    ] = "translate"
    preset: Annotated[
        Literal["auto", "tiny", "small", "base", "big", "modern"], "size of the model; auto: by corpus size and device"
    ] = "auto"
    data: DataSettings = field(default_factory=DataSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)

    @property
    def layers(self) -> str:
        """The layers of the stacks that a model for this task has."""
        encoder, decoder = self.model.encoder_layers, self.model.decoder_layers
        return {"translate": f"{encoder} + {decoder}", "write": str(decoder)}.get(self.task, str(encoder))

    @property
    def shape(self) -> str:
        """The size of the model in a few words."""
        model = self.model
        if model.recurrent:
            attends = f"attention of {model.heads} heads" if model.attends else "no attention"
            return f"{self.layers} layers of {model.kind.upper()}, width {model.width}, {attends}"
        return f"{self.layers} layers, width {model.width}, feed-forward {model.hidden}, {model.heads} heads"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.tie in ("all", "inputs") and not self.tokenizer.joint:
            raise SettingsError(
                f"model.tie = {self.model.tie} shares the source and target tables, which needs "
                "tokenizer.joint = true: set model.tie to output or none"
            )
        if self.model.recurrent:
            require_possible(self)
        if self.data.directions and not self.tokenizer.joint:
            raise SettingsError("data.directions need one vocabulary for all languages: set tokenizer.joint to true")


def require_possible(settings: Settings) -> None:
    """Refuses what a recurrent network cannot do."""
    training = settings.training
    wrong = {
        f"to {settings.task}": settings.task != "translate",
        "training.recompute": training.recompute,
        "training.adapters": training.adapters > 0,
        "training.parallel = fsdp": training.parallel == "fsdp",
    }
    for what, asked in wrong.items():
        if asked:
            raise SettingsError(
                f"model.kind = {settings.model.kind} is there to compare translators: {what} is for Transformers"
            )
