"""Looking changes nothing, everything can be seen, and what is seen adds up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from regard.errors import InputError
from regard.model.attention import Attention
from regard.model.observe import Trace, is_observed, observe, see
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.settings import ModelSettings
from tests.model.toys import (
    VOCABULARY,
    keep_lengths,
    model_settings,
    reader,
    same,
    scrambled,
    some_tokens,
    toy_settings,
    translator,
    writer,
)

SIZES = {  # all different, so that an axis with the wrong name has the wrong size
    "batch": 3,
    "head": 4,
    "group": 2,
    "key_width": 6,
    "value_width": 8,
    "width": 10,
    "hidden": 24,
    "token": VOCABULARY,
    "source": 5,
    "target": 7,
    "text": 9,
}
ODD_SHAPE: dict[str, Any] = {
    "width": SIZES["width"],
    "heads": SIZES["head"],
    "key_value_heads": SIZES["group"],
    "key_width": SIZES["key_width"],
    "value_width": SIZES["value_width"],
    "hidden": SIZES["hidden"],
    "encoder_layers": 2,
    "decoder_layers": 3,
    "activation": "swiglu",
}
AXES = {
    "query": "batch head query key_width",
    "key": "batch group key key_width",
    "value": "batch group key value_width",
    "scores": "batch head query key",
    "scaled": "batch head query key",
    "masked": "batch head query key",
    "weights": "batch head query key",
    "context": "batch head query value_width",
    "contributions": "batch head query width",
    "output": "batch query width",
}
FEED_FORWARD_AXES = {
    "rise": "batch position hidden",
    "gate": "batch position hidden",
    "active": "batch position hidden",
    "output": "batch position width",
}
RESIDUAL_AXES = {"sum": "batch position width", "norm": "batch position width"}
EMBEDDING_AXES = {
    "tokens": "batch position width",
    "positions": "position width",
    "sum": "batch position width",
}


def of_text(axes: str, here: str, there: str) -> tuple[str, ...]:
    texts = {"query": here, "position": here, "key": there}
    return tuple(f"{axis}:{texts[axis]}" if axis in texts else axis for axis in axes.split())


def stack_axes(stack: str, layers: int, here: str, there: str | None = None) -> dict[str, tuple[str, ...]]:
    """Everything that can be seen in a stack of layers, by name."""
    seen = {f"{stack}.states": of_text("batch position width", here, here)}
    for layer in (f"{stack}.layers.{i}" for i in range(layers)):
        attentions = {"self_attention": here} | ({"cross_attention": there} if there else {})
        for attention, looked_at in attentions.items():
            residual = f"{layer}.{attention.removesuffix('attention')}residual"
            seen |= {f"{layer}.{attention}.{n}": of_text(a, here, looked_at) for n, a in AXES.items()}
            seen |= {f"{residual}.{n}": of_text(a, here, here) for n, a in RESIDUAL_AXES.items()}
        for part, axes in (("feed_forward", FEED_FORWARD_AXES), ("feed_forward_residual", RESIDUAL_AXES)):
            seen |= {f"{layer}.{part}.{n}": of_text(a, here, here) for n, a in axes.items()}
    return seen


def embedding_axes(embedding: str, text: str) -> dict[str, tuple[str, ...]]:
    return {f"{embedding}.{name}": of_text(axes, text, text) for name, axes in EMBEDDING_AXES.items()}


def assert_complete(trace: Trace, expected: dict[str, tuple[str, ...]]) -> None:
    assert {name: seen.axes for name, seen in trace.items()} == expected
    for name, (tensor, axes) in trace.items():
        sizes = tuple(SIZES[axis.rpartition(":")[2]] for axis in axes)
        assert tuple(tensor.shape) == sizes, name
        assert not tensor.requires_grad


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_everything_in_an_encoder_decoder_is_seen_with_its_axes(norm: Any) -> None:
    model = translator(ModelSettings(**ODD_SHAPE, norm=norm))
    with observe(model) as trace:
        model(some_tokens(3, 5), some_tokens(3, 7), None)
    assert_complete(
        trace,
        {
            **embedding_axes("source_embedding", "source"),
            **stack_axes("encoder", 2, "source"),
            **embedding_axes("target_embedding", "target"),
            **stack_axes("decoder", 3, "target", "source"),
            "logits": ("batch", "position:target", "token"),
        },
    )


def test_everything_in_an_encoder_is_seen_with_its_axes() -> None:
    model = reader(ModelSettings(**ODD_SHAPE))
    with observe(model) as trace:
        model(some_tokens(3, 9), None)
    assert_complete(trace, {**embedding_axes("embedding", "text"), **stack_axes("encoder", 2, "text")})


def test_everything_in_a_decoder_is_seen_with_its_axes() -> None:
    model = writer(ModelSettings(**ODD_SHAPE))
    with observe(model) as trace:
        model(some_tokens(3, 9))
    assert_complete(
        trace,
        {
            **embedding_axes("embedding", "text"),
            **stack_axes("decoder", 3, "text"),
            "logits": ("batch", "position:text", "token"),
        },
    )


def test_the_example_of_the_documentation() -> None:
    model = translator(toy_settings())
    with observe(model) as trace:
        model(some_tokens(1, 5), some_tokens(1, 4), None)
    axes = trace["decoder.layers.0.cross_attention.weights"].axes
    assert axes == ("batch", "head", "query:target", "key:source")


Run = Callable[[], Tensor]


def runs(settings: ModelSettings, length: int = 5) -> list[tuple[nn.Module, Run]]:
    """The three arrangements, in float32 and each with something to run."""
    torch.manual_seed(0)
    translating = scrambled(EncoderDecoder(settings, VOCABULARY, VOCABULARY))
    reading, writing = scrambled(Encoder(settings, VOCABULARY)), scrambled(Decoder(settings, VOCABULARY))
    keep, source = keep_lengths([length, 3]), some_tokens(2, length)
    target = some_tokens(2, length - 1, 1)
    return [
        (translating, lambda: translating(source, target, keep)),
        (reading, lambda: reading(source, keep)),
        (writing, lambda: writing(target)),
    ]


@given(settings=model_settings())
def test_looking_changes_no_bit(settings: ModelSettings) -> None:
    for model, run in runs(settings):
        unseen = run()
        with observe(model) as trace:
            seen = run()
        assert torch.equal(seen, unseen)
        assert trace


def test_looking_changes_no_bit_of_long_texts_or_under_dropout() -> None:
    settings = toy_settings(max_length=128, attention_dropout=0.2)
    for model, run in runs(settings, length=80):
        for mode in (False, True):
            model.train(mode)
            torch.manual_seed(7)
            unseen = run()
            torch.manual_seed(7)
            with observe(model):
                assert torch.equal(run(), unseen)


def test_gradients_flow_while_somebody_looks() -> None:
    model = translator(toy_settings())
    inputs = some_tokens(2, 5), some_tokens(2, 4), keep_lengths([5, 3])
    model(*inputs).square().sum().backward()
    unseen = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with observe(model):
        model(*inputs).square().sum().backward()
    seen = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(seen, unseen, strict=True))


@given(settings=model_settings())
def test_what_is_seen_of_attention_adds_up(settings: ModelSettings) -> None:
    model = translator(settings)
    with observe(model) as trace:
        model(some_tokens(2, 5), some_tokens(2, 4, 1), keep_lengths([5, 3]))
    attentions = {name: m for name, m in model.named_modules() if isinstance(m, Attention)}
    assert len(attentions) == settings.encoder_layers + 2 * settings.decoder_layers
    for name, module in attentions.items():
        seen = {value: trace[f"{name}.{value}"].tensor for value in AXES}
        group = settings.heads // settings.query_groups
        key, value = (seen[each].repeat_interleave(group, 1) for each in ("key", "value"))
        assert same(seen["scores"], torch.einsum("bhtk,bhsk->bhts", seen["query"], key))
        assert same(seen["scaled"], seen["scores"] / settings.head_width**0.5)
        looked_at = seen["masked"] != -torch.inf
        assert same(seen["masked"][looked_at], seen["scaled"][looked_at])
        assert same(seen["weights"], seen["masked"].softmax(-1))
        assert same(seen["context"], torch.einsum("bhts,bhsv->bhtv", seen["weights"], value))
        bias = module.output.bias if settings.bias else torch.zeros(settings.width).double()
        assert same(seen["output"], seen["contributions"].sum(1) + bias)


@given(settings=model_settings())
def test_what_is_seen_of_residuals_adds_up(settings: ModelSettings) -> None:
    """The residual stream can be followed from the embedding to the states, sum by sum."""
    model = translator(settings)
    with observe(model) as trace:
        model(some_tokens(2, 5), some_tokens(2, 4, 1), keep_lengths([5, 3]))
    sublayers = ["self_attention", "cross_attention", "feed_forward"]
    for embedding, stack, depth in (
        ("source_embedding", "encoder", settings.encoder_layers),
        ("target_embedding", "decoder", settings.decoder_layers),
    ):
        settled = "norm" if settings.embedding_norm else "sum"
        stream = trace[f"{embedding}.{settled}"].tensor
        for layer in (f"{stack}.layers.{i}" for i in range(depth)):
            for sublayer in sublayers if stack == "decoder" else sublayers[::2]:
                residual = f"{layer}.{sublayer.removesuffix('_attention')}_residual"
                total, normed = trace[f"{residual}.sum"].tensor, trace[f"{residual}.norm"].tensor
                norm = model.get_submodule(f"{residual}.norm")
                assert same(total, stream + trace[f"{layer}.{sublayer}.output"].tensor)
                assert same(normed, norm(stream if settings.norm == "pre" else total))
                stream = total if settings.norm == "pre" else normed
        last = model.get_submodule(f"{stack}.norm")
        assert same(trace[f"{stack}.states"].tensor, last(stream))
    assert same(trace["logits"].tensor, model.logits(trace["decoder.states"].tensor))


def test_what_is_seen_of_an_embedding_adds_up() -> None:
    model = reader(toy_settings())
    tokens = some_tokens(2, 5)
    with observe(model) as trace:
        model(tokens, None)
    table = model.embedding.tokens.weight
    assert same(trace["embedding.tokens"].tensor, table[tokens] * 4.0)
    total = trace["embedding.tokens"].tensor + trace["embedding.positions"].tensor
    assert same(trace["embedding.sum"].tensor, total)


def test_what_is_seen_of_cached_steps_equals_the_whole_run() -> None:
    """The page shows one pass over the finished text and calls it the steps: they must be the same."""
    model = writer(toy_settings())
    tokens = some_tokens(1, 6)
    with observe(model) as whole:
        model(tokens)
    cache = model.new_cache()
    model(tokens[:, :5], cache)
    with observe(model) as step:
        model(tokens[:, 5:], cache)
    for name in ("decoder.layers.1.self_attention.weights", "decoder.layers.0.self_attention.context"):
        assert same(step[name].tensor[:, :, -1], whole[name].tensor[:, :, -1])
    assert same(step["logits"].tensor[:, -1], whole["logits"].tensor[:, -1])


# The block


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_nothing_is_recorded_outside_the_block() -> None:
    model = translator(toy_settings())
    inputs = some_tokens(1, 5), some_tokens(1, 4), None
    model(*inputs)
    with observe(model) as trace:
        assert is_observed()
        assert not trace
    assert not is_observed()
    model(*inputs)
    assert not trace
    assert hooks(model) == 0


def test_a_second_run_overwrites_the_first() -> None:
    model = writer(toy_settings())
    with observe(model) as trace:
        model(some_tokens(1, 5))
        model(some_tokens(1, 3))
    assert trace["logits"].tensor.shape[1] == 3


def test_seeing_returns_its_argument_itself() -> None:
    tensor = torch.zeros(1)
    assert see("nothing", tensor, "batch") is tensor


def test_a_block_in_a_block_records_for_itself_and_gives_back() -> None:
    model = writer(toy_settings())
    with observe(model) as outer:
        with observe(model) as inner:
            model(some_tokens(1, 3))
        inside = set(inner)
        assert not outer
        model(some_tokens(1, 5))
    assert set(outer) == inside
    assert (outer["logits"].tensor.shape[1], inner["logits"].tensor.shape[1]) == (5, 3)
    assert not is_observed()
    assert hooks(model) == 0


def test_an_error_in_the_model_leaves_nothing_behind() -> None:
    model = writer(toy_settings(positions="learned", max_length=4))
    with pytest.raises(InputError), observe(model):
        model(some_tokens(1, 5))
    assert not is_observed()
    assert hooks(model) == 0


def test_after_an_error_the_names_of_the_next_run_are_right() -> None:
    model = writer(toy_settings(positions="learned", max_length=4))
    with observe(model) as expected:
        model(some_tokens(1, 4))
    with observe(model) as trace:
        with pytest.raises(InputError):
            model(some_tokens(1, 5))
        assert trace.places == []
        trace.clear()
        model(some_tokens(1, 4))
    assert set(trace) == set(expected)


def test_traces_with_different_contents_are_not_equal() -> None:
    model = writer(toy_settings())
    with observe(model) as first:
        model(some_tokens(1, 4))
    with observe(model) as second:
        pass
    equal = first == second  # not `!=`, which a dict answers by itself
    assert not equal


def test_a_run_in_another_thread_stays_out_of_the_trace() -> None:
    """A server translates in one thread and explains in another, with one model."""
    model = writer(toy_settings())
    with observe(model) as expected:
        model(some_tokens(1, 4))
    inside, go_on = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: model(some_tokens(2, 3)))

    def wait_inside(*_: object) -> None:
        if threading.current_thread() is other:
            inside.set()
            go_on.wait(10)

    def let_the_other_in(*_: object) -> None:
        if threading.current_thread() is not other:
            other.start()
            inside.wait(10)

    first, second = (model.decoder.get_submodule(f"layers.{i}.feed_forward") for i in range(2))
    handles = [
        first.register_forward_pre_hook(wait_inside),
        second.register_forward_pre_hook(let_the_other_in),
    ]
    try:
        with observe(model) as trace:
            model(some_tokens(1, 4))
    finally:
        go_on.set()
        other.join()
        for handle in handles:
            handle.remove()
    assert list(trace) == list(expected)
    assert all(torch.equal(trace[name].tensor, expected[name].tensor) for name in expected)


def test_a_run_goes_on_with_what_was_changed() -> None:
    model = writer(toy_settings())
    tokens = some_tokens(2, 6)
    place = "decoder.layers.0.self_attention"

    def silence(context: Tensor) -> Tensor:
        return context.index_fill(1, torch.tensor([1]), 0.0)

    plain = model(tokens)
    with observe(model, {f"{place}.context": silence}) as trace:
        changed = model(tokens)
    assert trace[f"{place}.context"].tensor[:, 1].abs().max() == 0
    assert trace[f"{place}.contributions"].tensor[:, 1].abs().max() == 0
    assert not torch.allclose(plain, changed)

    def evenly(weights: Tensor) -> Tensor:
        return (weights > 0).to(weights) / (weights > 0).sum(-1, keepdim=True)

    with observe(model, {f"{place}.weights": evenly}) as trace:
        model(tokens)
    value = trace[f"{place}.value"].tensor
    assert torch.allclose(trace[f"{place}.context"].tensor[:, :, 3], value[:, :, :4].mean(2), atol=1e-6)
    assert torch.equal(model(tokens), plain)


def test_an_edit_that_changes_nothing_gives_the_same_result() -> None:
    model = translator(toy_settings())
    source, target = some_tokens(2, 5), some_tokens(2, 7)
    plain = model(source, target, None)
    with observe(model, {"decoder.layers.0.cross_attention.weights": lambda weights: weights}):
        same(model(source, target, None), plain)
