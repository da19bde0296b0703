"""Tables of foreign parameter names: one row for each tensor, used for both import and export."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import ModelError


@dataclass(frozen=True)
class Change:
    """A conversion of a foreign tensor to one or several of Regard's, and back."""

    take: Callable[[Tensor], Sequence[Tensor]]
    give: Callable[[Sequence[Tensor]], Tensor]


SAME = Change(lambda t: [t], lambda ts: ts[0])
TRANSPOSED = Change(lambda t: [t.T], lambda ts: ts[0].T)
FLAT = Change(lambda t: [t.flatten()], lambda ts: ts[0][None])  # [1, V] and [V]
FUSED = Change(lambda t: t.chunk(3), lambda ts: torch.cat(list(ts)))
FUSED_TRANSPOSED = Change(lambda t: t.T.chunk(3), lambda ts: torch.cat(list(ts)).T)
OFFSET = 2
SHIFTED = Change(lambda t: [t[OFFSET:]], lambda ts: torch.cat([ts[0].new_zeros(OFFSET, ts[0].shape[1]), ts[0]]))


@dataclass(frozen=True)
class Row:
    """A tensor of theirs and what it is here; {n} is the number of a layer."""

    theirs: str
    ours: tuple[str, ...]
    change: Change = SAME


@dataclass(frozen=True)
class Table:
    """A family's names. Several rows may name one parameter of ours: all are read, the first is written.

    `prefix` stands before every name but those of `heads`, and is left out in some files; `ignored` are
    patterns of what is in a file and is no weight.
    """

    prefix: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    ignored: tuple[str, ...] = ()

    def plain(self, name: str) -> str | None:
        """Returns a foreign name as it is in the rows, or None for a tensor that is not a weight."""
        name = name.removeprefix(self.prefix)
        if name.endswith((".gamma", ".beta")):  # what norms were called in BERT's first files
            name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
        return None if any(re.search(pattern, name) for pattern in self.ignored) else name

    def full(self, name: str) -> str:
        return name if name.startswith(self.heads) else self.prefix + name


def take(table: Table, tensors: Mapping[str, Tensor], model: nn.Module, path: Path) -> dict[str, Tensor]:
    """Converts tensors to Regard's parameters; the error names a missing, unexpected or misshapen tensor."""
    every, owners = parameters(model)
    taken: dict[str, Tensor] = {}
    wanted: dict[str, str] = {}
    unused = set(tensors)
    for row in expand(table, owners):
        for name in row.ours:
            wanted.setdefault(owners[name], row.theirs)
        if row.theirs not in tensors:
            continue
        unused.discard(row.theirs)
        found, shape = tensors[row.theirs], row.change.give([every[name] for name in row.ours]).shape
        if found.shape != shape:
            shapes = f"{tuple(found.shape)} instead of {tuple(shape)}"
            raise ModelError(f"{path}: the tensor {row.theirs} has the shape {shapes}")
        for name, tensor in zip(row.ours, row.change.take(found), strict=True):
            owner = owners[name]
            if owner in taken and not torch.equal(taken[owner], tensor):
                told = f"the tensor {row.theirs} is not equal to {wanted[owner]}, of which it should be a copy"
                raise ModelError(f"{path}: {told}")
            taken.setdefault(owner, tensor)
    if unused:
        raise ModelError(f"{path}: has the tensor {min(unused)}, which this kind of model does not have")
    for owner in dict.fromkeys(owners.values()):
        if owner not in taken:
            raise ModelError(f"{path}: the tensor {wanted.get(owner, owner)} is missing")
        if not bool(taken[owner].isfinite().all()):
            raise ModelError(f"{path}: the tensor {wanted[owner]} holds numbers that are not finite")
    return {owner: taken[owner].float() for owner in dict.fromkeys(owners.values())}


def give(table: Table, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Converts Regard's parameters to tensors with foreign names, each once."""
    given: dict[str, Tensor] = {}
    left = set(tensors)
    for row in expand(table, {name: name for name in tensors}):
        if left.issuperset(row.ours):
            given[table.full(row.theirs)] = row.change.give([tensors[name] for name in row.ours]).contiguous()
            left.difference_update(row.ours)
    assert not left, f"no row for {sorted(left)}"
    return given


def expand(table: Table, names: Mapping[str, str]) -> Iterator[Row]:
    """Returns the rows of the parameters that a model has, one for each layer."""
    for row in table.rows:
        layer = 0
        while row.ours[0].replace("{n}", str(layer)) in names:
            ours = tuple(name.replace("{n}", str(layer)) for name in row.ours)
            yield Row(row.theirs.replace("{n}", str(layer)), ours, row.change)
            if "{n}" not in row.theirs:
                break
            layer += 1


def parameters(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns every parameter by each of its names, and the first name of each parameter."""
    every = dict(model.named_parameters(remove_duplicate=False))
    first: dict[int, str] = {}
    owners = {name: first.setdefault(id(parameter), name) for name, parameter in every.items()}
    return dict(every), owners


def rows(theirs: str, ours: str, pairs: str, change: Change = SAME, bias: Change = SAME) -> tuple[Row, ...]:
    """Returns rows for the weights and biases of modules: their foreign name and Regard's, under these prefixes."""
    found = []
    for line in pairs.strip().splitlines():
        left, right = line.split()
        parts = [ours + part for part in right.split(",")]
        for kind, each in (("weight", change), ("bias", bias)):
            found.append(Row(f"{theirs}{left}.{kind}", tuple(f"{part}.{kind}" for part in parts), each))
    return tuple(found)


BERT_BODY = (
    Row("embeddings.word_embeddings.weight", ("embedding.tokens.weight",)),
    Row("embeddings.token_type_embeddings.weight", ("embedding.segments.weight",)),
    *rows("embeddings.", "embedding.", "LayerNorm norm"),
    *rows(
        "encoder.layer.{n}.",
        "encoder.layers.{n}.",
        """
        attention.self.query        self_attention.query
        attention.self.key          self_attention.key
        attention.self.value        self_attention.value
        attention.output.dense      self_attention.output
        attention.output.LayerNorm  self_residual.norm
        intermediate.dense          feed_forward.rise
        output.dense                feed_forward.fall
        output.LayerNorm            feed_forward_residual.norm
        """,
    ),
)
BERT_POSITIONS = "embeddings.position_embeddings.weight"
BERT_BUFFERS = (r"^embeddings\.(position_ids|token_type_ids)$",)

BERT = Table(
    prefix="bert.",
    heads=("cls.", "classifier."),
    rows=(
        *BERT_BODY,
        Row(BERT_POSITIONS, ("embedding.positions.table",)),
        *rows("", "", "pooler.dense pooler.dense"),
        *rows("cls.predictions.transform.", "fill.", "dense dense\nLayerNorm norm"),
        Row("cls.predictions.decoder.weight", ("fill.logits.weight",)),
        Row("cls.predictions.bias", ("fill.logits.bias",)),
        Row("cls.predictions.decoder.bias", ("fill.logits.bias",)),
        *rows("", "", "cls.seq_relationship follows\nclassifier label"),
    ),
    ignored=BERT_BUFFERS,
)

ROBERTA = Table(
    prefix="roberta.",
    heads=("lm_head.", "classifier."),
    rows=(
        *BERT_BODY,
        Row(BERT_POSITIONS, ("embedding.positions.table",), SHIFTED),
        *rows("", "", "pooler.dense pooler.dense\nclassifier.dense pooler.dense"),
        *rows("", "", "classifier label\nclassifier.out_proj label"),
        *rows("lm_head.", "fill.", "dense dense\nlayer_norm norm"),
        Row("lm_head.decoder.weight", ("fill.logits.weight",)),
        Row("lm_head.bias", ("fill.logits.bias",)),
        Row("lm_head.decoder.bias", ("fill.logits.bias",)),
    ),
    ignored=BERT_BUFFERS,
)

DISTILBERT = Table(
    prefix="distilbert.",
    heads=("vocab_", "pre_classifier.", "classifier."),
    rows=(
        Row("embeddings.word_embeddings.weight", ("embedding.tokens.weight",)),
        Row(BERT_POSITIONS, ("embedding.positions.table",)),
        *rows("embeddings.", "embedding.", "LayerNorm norm"),
        *rows(
            "transformer.layer.{n}.",
            "encoder.layers.{n}.",
            """
            attention.q_lin    self_attention.query
            attention.k_lin    self_attention.key
            attention.v_lin    self_attention.value
            attention.out_lin  self_attention.output
            sa_layer_norm      self_residual.norm
            ffn.lin1           feed_forward.rise
            ffn.lin2           feed_forward.fall
            output_layer_norm  feed_forward_residual.norm
            """,
        ),
        *rows("vocab_", "fill.", "transform dense\nlayer_norm norm\nprojector logits"),
        *rows("", "", "pre_classifier pooler.dense\nclassifier label"),
    ),
    ignored=BERT_BUFFERS,
)

GPT2 = Table(
    prefix="transformer.",
    heads=("lm_head.",),
    rows=(
        Row("wte.weight", ("embedding.tokens.weight",)),
        Row("wpe.weight", ("embedding.positions.table",)),
        *rows("h.{n}.", "decoder.layers.{n}.", "ln_1 self_residual.norm\nln_2 feed_forward_residual.norm"),
        *rows("h.{n}.attn.", "decoder.layers.{n}.self_attention.", "c_attn query,key,value", FUSED_TRANSPOSED, FUSED),
        *rows("h.{n}.attn.", "decoder.layers.{n}.self_attention.", "c_proj output", TRANSPOSED),
        *rows("h.{n}.mlp.", "decoder.layers.{n}.feed_forward.", "c_fc rise\nc_proj fall", TRANSPOSED),
        *rows("", "", "ln_f decoder.norm"),
        Row("lm_head.weight", ("logits.weight",)),
    ),
    ignored=(r"^h\.\d+\.attn\.(bias|masked_bias)$",),  # the causal mask, kept as if it were a weight
)

LLAMA = Table(
    prefix="model.",
    heads=("lm_head.",),
    rows=(
        Row("embed_tokens.weight", ("embedding.tokens.weight",)),
        *rows(
            "layers.{n}.",
            "decoder.layers.{n}.",
            """
            self_attn.q_proj          self_attention.query
            self_attn.k_proj          self_attention.key
            self_attn.v_proj          self_attention.value
            self_attn.o_proj          self_attention.output
            input_layernorm           self_residual.norm
            mlp.gate_proj             feed_forward.gate
            mlp.up_proj               feed_forward.rise
            mlp.down_proj             feed_forward.fall
            post_attention_layernorm  feed_forward_residual.norm
            """,
        ),
        *rows("", "", "norm decoder.norm"),
        Row("lm_head.weight", ("logits.weight",)),
    ),
    ignored=(r"rotary_emb\.inv_freq$",),
)


def marian_table(*, shared: bool) -> Table:
    """Marian's names; where source and target share an embedding table, it has a third name."""
    table = "shared" if shared else "encoder.embed_tokens"
    attention = "q_proj query\nk_proj key\nv_proj value\nout_proj output"
    body: list[Row] = [Row(f"{table}.weight", ("source_embedding.tokens.weight",))]
    body += [Row(f"{side}.embed_tokens.weight", (f"{name}_embedding.tokens.weight",)) for side, name in SIDES.items()]
    for side in SIDES:
        theirs = ours = side + ".layers.{n}."
        body += rows(theirs + "self_attn.", ours + "self_attention.", attention)
        body += rows(theirs, ours, "self_attn_layer_norm self_residual.norm")
        body += rows(theirs + "encoder_attn.", ours + "cross_attention.", attention)
        body += rows(theirs, ours, "encoder_attn_layer_norm cross_residual.norm")
        body += rows(theirs, ours, "fc1 feed_forward.rise\nfc2 feed_forward.fall")
        body += rows(theirs, ours, "final_layer_norm feed_forward_residual.norm")
    body += [Row("lm_head.weight", ("logits.weight",)), Row("final_logits_bias", ("logits.bias",), FLAT)]
    return Table("model.", ("lm_head.", "final_logits_bias"), tuple(body))


SIDES = {"encoder": "source", "decoder": "target"}
