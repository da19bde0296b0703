"""What the page says is so: for each arrangement, and for A, B and B − A."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
import torch
from playwright.sync_api import Page
from safetensors.torch import save_file

from regard.explorer import embedding_space as space
from regard.explorer.ablation import ablate
from regard.explorer.model_explorer import Explorer, Run
from regard.weights import parameters
from tests.browser.conftest import Watched, shown
from tests.browser.models import SENTENCE, arranged
from tests.explorer.toys import explorer as toy

TIRED = "The animal didn't cross the street because it was too tired."
WIDE = TIRED.replace("tired", "wide")
OTHER = {"translate": WIDE, "write": "The cat didn't", "fill": "The [MASK] didn't cross the road.", "classify": "No."}
READS_ONLY = r"chosen|decod|cross-attention|\bsource\b|\btarget\b|translat|memory|beam|next token|token that follows"
NEVER = {
    "GPT": r"\bencoder|cross-attention|\bsource\b|\btarget\b|translat|\bmemory|\blabel|\bgap\b",
    "BERT": rf"{READS_ONLY}|\blabel",
    "classifier": rf"{READS_ONLY}|\bgap\b|output of its own token",
}


def where(selected: str, differences: Mapping[str, object] | None = None, **more: str) -> str:
    """The part of an address that selects; `differences` are those of B."""
    b = {"b": json.dumps(differences)} if differences else {}
    return "#" + "&".join([selected, *(f"{key}={quote(value)}" for key, value in {**b, **more}.items())])


def words(page: Page, selector: str = "#main") -> str:
    return re.sub(r"\s+", " ", page.inner_text(selector)).replace("−", "-")


def words_of_page(page: Page) -> str:
    """All words of the page but the titles of lessons, which are about any model."""
    text = words(page, "body")
    for title in page.locator("[data-key='choice-Lesson'] option").all_inner_texts():
        text = text.replace(title, "")
    return text


@pytest.mark.parametrize("name", list(NEVER))
def test_no_view_speaks_of_another_arrangement(watched: Watched, serve: Callable[[Explorer], str], name: str) -> None:
    explorer = arranged(name)
    task, address = explorer.describe()["task"], serve(explorer)
    page = watched.open(address + where("", text=SENTENCE[task]))
    tabs = [
        re.sub(".*view=(\\w+).*", r"\1", each.get_attribute("href") or "") for each in page.locator("#tabs a").all()
    ]
    assert re.search(NEVER[name], words_of_page(page), re.I) is None
    for view in [each for each in tabs if not each.startswith("#")]:
        for side in ("a", "b", "diff"):
            patch = json.dumps([{"site": f"{next(iter(explorer.anatomy.stacks))}.layers.0.feed_forward", "op": "drop"}])
            differences = {"a": None, "b": {"text": OTHER[task]}, "diff": {"patch": patch}}[side]
            select = f"view={view}&ab={side}&t=2&layer=1&beam=1&max_tokens=4"
            watched.open(address + where(select, differences, text=SENTENCE[task]))
            assert page.query_selector("#main .error") is None, (view, side)
            assert re.findall(NEVER[name], words_of_page(page), re.I) == [], (view, side)


def test_no_card_of_the_journey_speaks_of_another_arrangement(
    watched: Watched, serve: Callable[[Explorer], str]
) -> None:
    for name in NEVER:
        explorer = arranged(name)
        text, address = SENTENCE[explorer.describe()["task"]], serve(explorer)
        page = watched.open(address + where("t=2&layer=1&depth=3&beam=1&max_tokens=4", text=text))
        for card in range(page.locator(".outline li").count()):
            watched.open(address + where(f"t=2&layer=1&depth=3&beam=1&max_tokens=4&card={card}", text=text))
            assert re.findall(NEVER[name], words(page), re.I) == [], (name, card)


def answers(run: Run, at: int) -> tuple[str, float]:
    """What a run answers at one of its steps, and what leaving out head 1 of the last layer's self-attention does."""
    stack = next(reversed(run.anatomy.stacks))
    deltas = ablate(run.passed, "heads", "zero")["heads"][f"{stack}.self_attention"][1][1]
    steps, labels = run.answer["steps"], run.answer["labels"]
    if labels:
        chances = labels[at]["probabilities"]
        return max(chances, key=lambda label: chances[label]), deltas[at]
    return f"{steps[at]['chosen']['display']} (t = {steps[at]['position']})", deltas[at]


@pytest.mark.parametrize("name", ["post-norm, tied", "BERT", "classifier", "GPT"])
def test_effects_in_a_difference_are_those_of_each_side(
    watched: Watched, serve: Callable[[Explorer], str], name: str
) -> None:
    """Two sides that answer differently are never subtracted: both are said, each of its own token or label."""
    explorer, address = arranged(name), serve(arranged(name))
    shape = explorer.describe()
    stack, text = next(reversed(shape["stacks"])), SENTENCE[shape["task"]]
    t = 9 if stack == "decoder" and "encoder" not in shape["stacks"] else 2  # one that is written
    select = f"stack={stack}&layer=1&head=1&t={t}&ab=diff&beam=1&max_tokens=4"
    page = watched.open(address + where(f"{select}&view=weights", text=text))
    a = shown(explorer, page)
    deltas = ablate(a.passed, "heads", "zero")["heads"][f"{stack}.self_attention"][1][1]
    at = t if stack == "decoder" else max(range(len(deltas)), key=lambda i: abs(deltas[i]))
    request, seen = a.answer["request"], set()
    drops = [{"site": each, "op": "drop"} for each in explorer.anatomy.stacks[stack].sublayers()]
    shifts = [{"site": f"{embedding}.positions", "op": "zero"} for embedding in explorer.anatomy.embeddings.values()]
    changes = [*([each] for each in [*drops, *shifts]), drops, drops[:-1], [*drops, *shifts]]
    for patch in changes:
        b = explorer.run({**request, "patch": patch})
        expected = [answers(a, at), answers(b, at)] if len(a.answer["steps"]) == len(b.answer["steps"]) else []
        alike = bool(expected) and expected[0][0] == expected[1][0]
        if not expected or alike in seen:
            continue
        seen.add(alike)
        watched.open(address + where(f"{select}&view=head", {"patch": json.dumps(patch)}, text=text))
        page.wait_for_selector("#main .effect span")
        said = words(page, "#main .effect")
        for side, (answer, delta) in zip("AB", expected, strict=True):
            assert f"{side}: {answer} {delta + 0:.2f}".replace("-0.00", "0.00") in said
        more = expected[1][1] - expected[0][1]
        assert ("B - A:" in said) == alike
        assert not alike or f"B - A: {more + 0:.2f}".replace("-0.00", "0.00") in said
        watched.open(address + where(f"{select}&view=atlas", {"patch": json.dumps(patch)}, text=text))
        tile = page.locator(f"[data-key='tile-{stack}.self_attention-1-1']")
        tile.locator("b").wait_for(state="attached")
        assert (tile.locator("b").inner_text() != "") == alike
        assert alike or re.search(r"A .* \| B ", tile.inner_text())
    assert False in seen


def test_the_lens_gives_no_shares_of_two_different_tokens(watched: Watched, address: str, glass: Explorer) -> None:
    for t in (2, 13):
        select = f"view=lens&stack=decoder&t={t}&ab=diff"
        page = watched.open(address + where(select, {"text": WIDE}, text=TIRED))
        a = shown(glass, page)
        b = glass.run({**a.answer["request"], "text": WIDE})
        ours, theirs = (run.answer["steps"][t]["chosen"]["display"] for run in (a, b))
        if ours == theirs:
            assert f"Which parts spoke for {ours} at step {t}" in words(page)
        else:
            assert f"At step {t} A has {ours} and B has {theirs}" in words(page)
            assert "Which parts spoke" not in words(page)
    assert ours != theirs


def test_labels_of_a_difference_name_the_tokens_of_both(watched: Watched, address: str) -> None:
    for view in ("head", "lens", "alignment"):
        select = f"view={view}&stack=encoder&layer=1&q=12&ab=diff"
        target = "L'animal."
        page = watched.open(address + where(select, {"text": WIDE}, text=TIRED, target=target))
        assert page.query_selector("#main .error") is None
        page.locator("#main figure button[aria-label^='as a table']").first.click() if view != "lens" else None
        assert re.search("tired \\| ▁?wide", words(page)), view
        assert "looks most at" not in words(page)


TITLES = "all => all.map(each => each.title)"


def test_views_without_a_difference_show_a(watched: Watched, address: str) -> None:
    for view in ("decoding", "space", "microscope", "positions"):
        for at in ("", "&x=space%3Ddecoder%2B1"):
            page = watched.open(address + where(f"view={view}{at}", None, text=TIRED))
            plain, code = words(page), page.eval_on_selector_all("#main [title^='import regard']", TITLES)
            watched.open(address + where(f"view={view}&ab=diff{at}", {"text": WIDE}, text=TIRED))
            note = "B - A This view has no difference to show: this is A."
            assert words(page).startswith(note)
            assert words(page).removeprefix(note).strip() == plain
            assert page.eval_on_selector_all("#main [title^='import regard']", TITLES) == code


@pytest.mark.usefixtures("needs_server")
def test_python_for_a_difference_makes_the_difference(watched: Watched, address: str, glass: Explorer) -> None:
    select = "view=head&stack=decoder&kind=cross_attention&layer=1&head=1&ab=diff"
    page = watched.open(address + where(select, {"text": WIDE}, text=TIRED))
    a = shown(glass, page)
    b = glass.run({**a.answer["request"], "text": WIDE})
    code = page.locator("figure button[aria-label^='copy as Python']").first.get_attribute("title") or ""
    *lines, last = code.strip().splitlines()
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)  # noqa: S102
    site = "decoder.layers.1.cross_attention.weights"
    assert torch.allclose(eval(last, scope), b[site][1] - a[site][1], atol=1e-6)  # noqa: S307


# Shapes

CAPTIONS = "all => all.map(each => [each.querySelector('b').textContent, each.querySelector('small').textContent])"


def shapes(run: Run, card: str, stack: str, kind: str) -> dict[str, tuple[int, ...]]:
    """The shape that each picture of a card must be captioned with, by its name; the tensors and weights say it."""
    site, shape, weights = f"{stack}.layers.1.{kind}", run.anatomy.shape, parameters(run.anatomy.model)
    n, width = run[f"{site}.output"].shape
    keys, k = run[f"{site}.key"].shape[1:]
    v = run[f"{site}.value"].shape[2]
    every = run[f"{site}.context"].transpose(0, 1).flatten(1).shape[1]
    text = run.anatomy.stacks[stack].text
    found: dict[str, tuple[int, ...]] = {
        "X": (n, width), "Memory": (keys, width), "Q": (n, k), "K": (keys, k), "V": (keys, v), "Kᵀ": (k, keys),
        "WQ": (width, k), "WK": (width, k), "WV": (width, v), "Scores": (n, keys), "α": (1, keys),
        "weights": (n, keys), "z": (1, every if card == "project" else v), "WO": (every, width), "out": (1, width),
        **{f"z{head}": (1, v) for head in range(shape.heads)}, "x": (1, width), "h": (1, width),
    }  # fmt: skip
    hidden = run[f"{stack}.layers.1.feed_forward.active"].shape[1]
    found |= dict.fromkeys(["x W1", "gate", shape.activation], (1, hidden))
    table = run.anatomy.embedding(text).tokens.weight
    found |= {"E": tuple(table.shape), "PE": (n, width)}
    if (output := run.anatomy.output_layer()) is not None:
        found |= {"Eᵀ": (output.in_features, output.out_features), "Logits": (1, output.out_features)}
    assert set(weights) >= {f"{site}.query.weight"}
    return found


@pytest.mark.parametrize("name", ["pre-norm, untied, learned", "GPT", "BERT", "Llama"])
def test_every_caption_of_a_shape_is_that_of_the_tensor(
    watched: Watched, serve: Callable[[Explorer], str], name: str
) -> None:
    explorer, address = arranged(name), serve(arranged(name))
    text = SENTENCE[explorer.describe()["task"]]
    select = "layer=1&head=1&q=2&t=2&max_tokens=4&beam=1"
    page = watched.open(address + where(select, text=text))
    run, captioned = shown(explorer, page), set()
    for card in range(page.locator(".outline li").count()):
        watched.open(address + where(f"{select}&card={card}", text=text))
        steps = page.locator(".steps button").all()
        for step in range(max(1, len(steps))):
            if steps:
                page.locator(".steps button").nth(step).click()
                watched.settle()
            selected = page.eval_on_selector("#playhead select", "each => each.value").split(".")
            key = (
                page.locator("[data-receipt]").first.get_attribute("data-receipt")
                if page.query_selector("[data-receipt]")
                else ""
            ) or ""
            right = shapes(run, key, *selected)
            for label, caption in page.eval_on_selector_all("#main .block", CAPTIONS):
                assert caption == " × ".join(map(str, right[label])), (card, label)
                captioned.add(label)
    assert {"X", "Q", "Kᵀ", "α", "z", "WO", "x W1", "out", "E"} <= captioned


# Sentences that depend on the model


def story(watched: Watched, address: str, title: str, **more: str) -> str:
    """The words of the card of this title."""
    page = watched.open(address + where("beam=1&max_tokens=4", None, **more))
    titles = [each.strip() for each in page.locator(".outline .title").all_inner_texts()]
    watched.open(address + where(f"beam=1&max_tokens=4&card={titles.index(title)}", None, **more))
    return words(page, "#main .story")


def test_stories_tell_how_this_model_works(watched: Watched, serve: Callable[[Explorer], str], address: str) -> None:
    llama, bert, both = (serve(arranged(name)) for name in ("Llama", "BERT", "post-norm, tied"))
    prompt, gap = SENTENCE["write"], SENTENCE["fill"]
    assert "keys and values are made 1 times only and shared" in story(watched, llama, "All heads", text=prompt)
    assert "each with matrices of its own" in story(watched, bert, "All heads", text=gap)
    assert "States" in words(watched.page, ".outline")
    assert "subtract the mean, divide by the spread" in story(watched, both, "Norm", text=TIRED)
    assert "Memory" in words(watched.page, ".outline")
    assert "one table, used 3 times" in story(watched, both, "Logits", text=TIRED)  # source, target and output
    hidden = json.dumps([{"site": "source", "op": "hide", "position": 2}])
    assert "may look at every other" in story(watched, both, "Mask", text=TIRED)
    assert "was hidden by hand" in story(watched, both, "Mask", patch=hidden, text=TIRED)
    page = watched.open(address + where("card=1&depth=2&checkpoint=step-00000800", text=TIRED))
    assert "those of the final model, not of this step" in words(page)
    assert page.query_selector(".receipt") is None


@pytest.mark.usefixtures("needs_server")
def test_the_map_of_embeddings_says_which_pieces_it_shows(watched: Watched, address: str, glass: Explorer) -> None:
    page = watched.open(address + where("view=space", text=TIRED))
    assert (
        f"Embeddings of all {space.embedding_map(glass.anatomy, 'source', 400, [], glass.usage)['usual']} pieces"
        in words(page)
    )
    page.route("**/api/embeddings/map*", lambda route: route.fulfill(json=fewer(glass)))
    page.reload()
    watched.settle()
    assert "Embeddings of the first 9 of " in words(page)
    assert "usual" not in words(page)


def fewer(explorer: Explorer) -> dict[str, object]:
    return space.embedding_map(explorer.anatomy, "source", 9, [0], explorer.usage)


@pytest.mark.parametrize(
    ("name", "text"), [("BERT", SENTENCE["fill"]), ("BERT", "The dog ran."), ("classifier", "Yes.")]
)
def test_training_of_an_encoder_has_no_chosen_token(
    watched: Watched, serve: Callable[[Explorer], str], tmp_path: Path, name: str, text: str
) -> None:
    contents = arranged(name).contents
    (tmp_path / "history").mkdir()
    tensors = {each: tensor.contiguous().clone() for each, tensor in parameters(contents.model).items()}
    save_file(tensors, tmp_path / "history" / "step-00000007.safetensors")
    explorer = Explorer(contents, name, tmp_path)
    page = watched.open(serve(explorer) + where("view=time&t=2", text=text))
    page.wait_for_selector("#main figure")
    said = words(page)
    assert re.findall(NEVER[name], said, re.I) == []
    run = explorer.run({"text": text})
    if name == "classifier":
        assert "by the lens" not in said
        assert "best at" not in said
    elif "[MASK]" in text:
        assert "Rank of the token that each step fills in at position 2, by the lens" in said
        assert run["encoder.lens.rank"][-1, 2] == 0
    else:
        assert "Rank of the token at position 2, by the lens" in said


def test_what_if_names_the_label_of_the_followed_word(watched: Watched, serve: Callable[[Explorer], str]) -> None:
    explorer = toy("classify", data={"carrier": "word"})
    select = "view=whatif&layer=1&head=1&t=3&x=map%3Dheads%2Bmean"
    page = watched.open(serve(explorer) + where(select, text="The old dog sings."))
    run = shown(explorer, page)
    at = next(i for i, each in enumerate(run.answer["labels"]) if each["position"] == 3)
    delta = ablate(run.passed, "heads", "mean")["heads"]["encoder.self_attention"][1][1][at]
    chances = run.answer["labels"][at]["probabilities"]
    label = max(chances, key=lambda each: chances[each])
    assert f"This head set to mean changes log p of {label} (t = 3) by {delta:.4f}." in words(page)
