"""The fast loss equals the readable one, and padding does not count."""

from __future__ import annotations

import torch
from hypothesis import given, strategies as st
from torch import nn
from torch.nn import functional as F

from regard.model.kernels.compute_mode import computing
from regard.model.transformer import EncoderDecoder
from regard.settings import ModelSettings
from regard.training import losses
from regard.training.batches import IGNORE, PairBatch
from regard.training.losses import chunked_cross_entropy, cross_entropy, translation_loss


@given(
    st.integers(1, 700),
    st.integers(2, 40),
    st.booleans(),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.floats(0.1, 30.0),
)
def test_fused_and_readable_agree_on_loss_and_gradients(
    rows: int, vocabulary: int, bias: bool, smoothing: float, size: float
) -> None:
    torch.manual_seed(rows)
    states, labels = torch.randn(rows, 8) * size, torch.randint(vocabulary, (rows,))
    output = nn.Linear(8, vocabulary, bias)
    results = []
    for function in (cross_entropy, chunked_cross_entropy):
        inputs = states.clone().requires_grad_()
        output.zero_grad()
        total, surprise = function(inputs, output, labels, smoothing)
        (total * 0.37).backward()
        results.append(
            [total, surprise, inputs.grad, *(p.grad.clone() for p in output.parameters() if p.grad is not None)]
        )
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)


def test_with_rounded_products_the_loss_is_the_same_and_the_gradients_are_near() -> None:
    torch.manual_seed(0)
    states, labels = torch.randn(600, 16), torch.randint(50, (600,))
    output = nn.Linear(16, 50)
    results = []
    for bfloat16 in (False, True):
        inputs = states.clone().requires_grad_()
        output.zero_grad()
        with computing(bfloat16=bfloat16):
            total, surprise = chunked_cross_entropy(inputs, output, labels, 0.1)
        total.backward()
        assert output.bias.grad is not None
        results.append((total, surprise, output.bias.grad.clone(), inputs.grad, output.weight.grad))
    exact, rounded = results
    for a, b in zip(exact[:3], rounded[:3], strict=True):
        assert torch.equal(a, b)
    for wanted, found in zip(exact[3:], rounded[3:], strict=True):
        assert wanted is not None
        assert found is not None
        assert not torch.equal(wanted, found)
        torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max()))


def test_chunks_do_not_change_the_loss(monkeypatch: object) -> None:
    states, labels = torch.randn(37, 8), torch.randint(50, (37,))
    output = nn.Linear(8, 50)
    whole, _ = chunked_cross_entropy(states, output, labels, 0.1)
    try:
        old, losses.CHUNK = losses.CHUNK, 5
        pieces, _ = chunked_cross_entropy(states, output, labels, 0.1)
    finally:
        losses.CHUNK = old
    torch.testing.assert_close(pieces, whole)


def test_a_hopeless_label_gives_a_finite_loss() -> None:
    states, output = torch.tensor([[200.0]]), nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        output.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    total, surprise = chunked_cross_entropy(states, output, torch.tensor([1]), 0.0)
    assert total.item() == surprise.item() == 400.0


def test_padding_does_not_count() -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(
        ModelSettings(width=16, heads=2, hidden=16, encoder_layers=1, decoder_layers=1), 20, 20
    ).eval()
    source, target = torch.tensor([[5, 6, 2]]), torch.tensor([[1, 7, 8]])
    labels = torch.tensor([[7, 8, 2]])
    alone = translation_loss(model, PairBatch(source, labels, None, target), 0.1)
    longer, keep = F.pad(source, (0, 4)), F.pad(torch.ones_like(source, dtype=torch.bool), (0, 4))
    padded = PairBatch(longer, F.pad(labels, (0, 5), value=IGNORE), keep, F.pad(target, (0, 5)))
    wide = translation_loss(model, padded, 0.1)
    assert wide.tokens == alone.tokens == 3
    torch.testing.assert_close(wide.total, alone.total)
    # and the sum is that of PyTorch's own loss over the three tokens
    logits = model(source, target, None)[0]
    torch.testing.assert_close(alone.total, F.cross_entropy(logits, labels[0], reduction="sum", label_smoothing=0.1))
