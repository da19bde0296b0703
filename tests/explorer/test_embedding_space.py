"""What lies near what in the space of embeddings, and what tells the places of a text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from regard.errors import InputError
from regard.explorer import embedding_space as space
from regard.explorer.model_explorer import Explorer
from regard.explorer.request_types import MissingError
from regard.model.positions import RotaryPositions
from regard.tokens.token_streams import write_stream
from regard.training.batches import write_examples
from tests.explorer.toys import TEXT, close, contents, explorer

# Embeddings


def test_neighbours_are_those_of_the_table() -> None:
    made = explorer("translate")
    table = space.table(made.anatomy, "target")
    found = space.near(made.anatomy, "target", 300, 5, made.usage)
    cosines = torch.nn.functional.cosine_similarity(table, table[300:301])
    cosines[[0, 1, 2, 3, 4, 300]] = -2
    best = cosines.topk(5)
    assert [each["id"] for each in found["cosine"]] == best.indices.tolist()
    assert [each["value"] for each in found["cosine"]] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert [each["value"] for each in found["dot"]] == sorted((each["value"] for each in found["dot"]), reverse=True)
    assert found["other"] is None  # without its training data, nobody knows which pieces are of which language


def test_pieces_of_the_other_language_are_known_from_the_training_data(tmp_path: Path) -> None:
    write_examples(tmp_path / "training" / "train", [([300, 301, 302], [310, 311, 311, 302, 302])], 400)
    made = Explorer(contents("translate"), "toy", tmp_path)
    assert {each["id"] for each in space.near(made.anatomy, "source", 300, 12, made.usage)["other"]} == {310, 311, 302}
    assert {each["id"] for each in space.near(made.anatomy, "target", 311, 12, made.usage)["other"]} == {300, 301}


def test_the_map_is_the_first_two_principal_axes() -> None:
    made = explorer("embed")
    found = space.embedding_map(made.anatomy, "text", 30, [2, 265])
    pieces = made.contents.vocabularies.target.pieces(range(made.contents.vocabularies.target.size))
    words = [i for i, piece in enumerate(pieces) if i > 260 and re.search("[a-zé]{2}", piece, re.IGNORECASE)]
    assert found["ids"] == [2, 265, *words[:30]]
    assert found["displays"] == made.contents.vocabularies.target.pieces(found["ids"])
    rows = space.table(made.anatomy, "text")[found["ids"]]
    _, values, _ = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    points = torch.tensor(found["points"])
    assert close(points.norm(dim=0), values[:2], 1e-4)
    shares = values.square() / values.square().sum()
    assert found["explained"] == pytest.approx(shares[:2].tolist(), abs=1e-5)
    assert found == space.embedding_map(made.anatomy, "text", 30, [2, 265])


def test_the_map_takes_the_pieces_that_are_most_frequent_in_the_training_data(tmp_path: Path) -> None:
    pairs = [([300, 301, 301, 301, 2], [310]), ([300, 300, 300, 302], [311, 311])]
    write_examples(tmp_path / "training" / "train", pairs, 400)
    made = Explorer(contents("translate"), "toy", tmp_path)
    found = space.embedding_map(made.anatomy, "source", 2, [391], made.usage)
    assert (found["ids"], found["order"], found["usual"], found["texts"]) == ([300, 301, 391], "frequent", 2, 2)
    assert space.embedding_map(made.anatomy, "target", 9, [], made.usage)["ids"] == [310, 311]


def test_the_map_of_a_writer_counts_its_documents(tmp_path: Path) -> None:
    write_stream(tmp_path / "training" / "train", iter([([300, 301, 301], True, 9), ([302], True, 3)]), 400)
    made = Explorer(contents("write"), "toy", tmp_path)
    assert space.embedding_map(made.anatomy, "text", 1, [], made.usage)["ids"] == [301]
    one = space.count_usage(made.anatomy, tmp_path, most=1)
    assert one is not None
    assert (one.counts["text"][[300, 301, 302]].tolist(), one.texts) == ([1, 2, 0], 1)


def test_the_map_without_frequencies_takes_the_first_pieces_and_says_so() -> None:
    made = explorer("embed")
    found = space.embedding_map(made.anatomy, "text", 400, [], made.usage)
    assert (found["order"], found["usual"], found["texts"]) == ("all", len(found["ids"]), None)
    found = space.embedding_map(made.anatomy, "text", 30, [], made.usage)
    assert (found["order"], found["usual"], len(found["ids"])) == ("first", 30, 30)
    assert all(re.search(r"\w\w", display) for display in found["displays"])  # the first ones are single letters
    every = space.embedding_map(made.anatomy, "text", 400, [], made.usage)["usual"]
    assert 30 < found["pieces"] < every
    assert space.embedding_map(made.anatomy, "text", every - 1, [], made.usage)["usual"] == found["pieces"]


@pytest.mark.parametrize(
    ("display", "in_english", "in_chinese"),
    [("the", True, True), ("##ing", True, True), ("▁a", False, False), ("猫", False, True), ("天气", False, True),
     ("2024", False, False), ("é", False, False), ("на", True, True), ("고양이", False, True)],
)  # fmt: skip
def test_a_single_letter_is_a_word_where_the_sentence_is_written_so(
    display: str, in_english: bool, in_chinese: bool
) -> None:
    assert (space.is_word(display, False), space.is_word(display, True)) == (in_english, in_chinese)


def test_unused_entries_of_a_vocabulary_are_left_out() -> None:
    for display in ("⟨E4⟩", "⟨E4⟩⟨BD⟩", "<0x0A>", "[unused12]", "<unused3>", "<|reserved_special_token_7|>", "⟨?⟩"):
        assert space.NO_TEXT.fullmatch(display), display
    for display in ("the", "##ing", "▁unused", "⟨", "[", "é", "<"):
        assert not space.NO_TEXT.fullmatch(display), display


def test_ids_outside_the_vocabulary_are_refused() -> None:
    made = explorer("embed")
    with pytest.raises(InputError, match="side: must be text, not 'source'"):
        space.near(made.anatomy, "source", 300, 5, made.usage)
    with pytest.raises(MissingError, match="no token has the id 400"):
        space.near(made.anatomy, "text", 400, 5, made.usage)
    with pytest.raises(MissingError, match="no token has the id 999"):
        space.embedding_map(made.anatomy, "text", 5, [999])


# Positions


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal-halves", "learned"])
def test_positions_are_those_that_are_added(kind: str) -> None:
    run = explorer("embed", positions=kind).run({"text": TEXT})
    about, rows = space.positions(run.anatomy, "text", 20)
    assert rows is not None
    assert (about["rows"], about["width"]) == tuple(rows.shape) == (20, 16)
    assert close(rows[: len(run["embedding.positions"])], run["embedding.positions"])
    if kind == "learned":
        assert (about["kind"], about["wavelengths"]) == ("learned", None)
        assert space.positions(run.anatomy, "text", 100)[0]["rows"] == 24
    else:
        assert about["layout"] == ("halves" if "halves" in kind else "interleaved")
        for column, wave in enumerate(about["wavelengths"]):
            turned = 2 * torch.pi * torch.arange(20) / wave
            fits = close(rows[:, column], turned.sin(), 1e-4) or close(rows[:, column], turned.cos(), 1e-4)
            assert fits, column


def test_rotary_positions_are_cosines_and_sines() -> None:
    made = explorer("write", positions="rotary")
    about, rows = space.positions(made.anatomy, "text", 10)
    assert rows is not None
    assert (about["kind"], about["rows"], about["width"]) == ("rotary", 10, 4)
    cos, sin = rows.chunk(2, -1)
    x = torch.randn(1, 1, 10, 4)
    left, right = x.chunk(2, -1)
    turned = RotaryPositions(made.anatomy.shape)(x, 0)
    assert close(turned, torch.cat([left * cos - right * sin, right * cos + left * sin], -1))
    assert close(rows[1, :2], torch.tensor([2 * torch.pi / wave for wave in about["wavelengths"][:2]]).cos())


def test_a_model_may_have_no_positions() -> None:
    about, rows = space.positions(explorer("write", positions="none").anatomy, "text", 10)
    assert (about["kind"], about["rows"], rows) == ("none", 0, None)
