"""Generates text with a model and records how each token was chosen: greedily, by sampling, by beam search or forced.

The search is the same as in the engines. In a patched run, each step reads all tokens again, because patches that
depend on the whole text would not apply to cached keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam_search import Candidate, Choose, Fate, Step, beam_search, follow, most_probable, sample_tokens
from regard.decoding.decoder_step import NextToken, TranslationStep, WritingStep
from regard.decoding.search_interface import Hypothesis, Penalty, length_penalty, random_source
from regard.errors import InputError
from regard.explorer.displayed_tokens import Lexicon
from regard.explorer.model_parts import Anatomy
from regard.model.observe import Edit, observe
from regard.model.transformer import Decoder, EncoderDecoder
from regard.settings import DecodingSettings


@dataclass(frozen=True)
class Output:
    """A generated text without its end token, and how its tokens were chosen."""

    found: Hypothesis
    given: int = 0  # number of first tokens, including the end, that were forced
    drawn: list[float] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    beam: dict[str, Any] | None = None

    @property
    def inputs(self) -> list[int]:
        """The tokens from which a next token was predicted: all, or all but the last if the text was truncated."""
        return list(self.found.tokens[: len(self.found.log_probabilities) - 1])


@dataclass(frozen=True)
class WritingTask:
    """A text to generate: its input, the decoding settings, forced tokens and edits of the model."""

    read: list[int]  # ids of the source with its end token, or of the prompt
    settings: DecodingSettings
    limit: int  # maximum number of tokens, including the end token
    forced: tuple[int, ...] = ()
    edits: Mapping[str, Edit] = field(default_factory=dict)
    keep: list[bool] | None = None


def write_output(anatomy: Anatomy, task: WritingTask) -> Output:
    """Generates text as the engine of this model would, beginning with the forced tokens."""
    settings, lexicon = task.settings, anatomy.lexicons[anatomy.written]
    specials = lexicon.tokenizer.specials
    if len(task.forced) > task.limit:
        raise InputError(f"prefix: there are {len(task.forced)} tokens, but at most {task.limit} are possible here")
    penalty = length_penalty(settings.penalty, settings.length_penalty)
    sampler = RecordingSampler(seed_ids(anatomy, task), settings)
    done = bool(task.forced) and task.forced[-1] == specials.end
    with torch.no_grad():
        step = Forced(new_step(anatomy, task), task.forced)
        if settings.beam > 1 and not settings.temperature and not done:
            tree = BeamTree(specials.begin, settings.beam, task.limit)
            ((best, *_),) = beam_search(
                step, [task.limit], end=specials.end, width=settings.beam, penalty=penalty, watch=tree.watch
            )
            tree.finish(best, specials.end)
            beam = tree.to_json(lexicon, penalty, settings.penalty, settings.length_penalty)
            return Output(best, len(task.forced), beam=beam)
        choose: Choose = sampler if settings.temperature and not done else most_probable
        ((best,),) = follow(step, [task.limit], end=specials.end, penalty=penalty, choose=choose)
    return Output(best, len(task.forced), sampler.drawn, sampler.kept)


def seed_ids(anatomy: Anatomy, task: WritingTask) -> list[int]:
    """Returns the token ids that seed the random numbers for a text."""
    end = anatomy.lexicons[anatomy.read].tokenizer.specials.end
    return task.read[:-1] if anatomy.task == "translate" and task.read[-1] == end else task.read


class RecordingSampler:
    """Samples with the same random numbers as the engines, and records each number and the number of candidates."""

    def __init__(self, ids: Sequence[int], settings: DecodingSettings) -> None:
        self.settings, self.die = settings, random_source(ids, 0, settings)
        self.drawn: list[float] = []
        self.kept: list[int] = []

    def __call__(self, scores: Tensor) -> Tensor:
        s, number = self.settings, self.die.random()
        self.drawn.append(number)
        self.kept.append(count_candidates(scores[0], s))
        chance = torch.tensor([number], dtype=torch.float64)
        return sample_tokens(
            scores.cpu(), chance, temperature=s.temperature, top_k=s.top_k, top_p=s.top_p, min_p=s.min_p
        )


def count_candidates(scores: Tensor, settings: DecodingSettings) -> int:
    """Counts the tokens from which sampling can choose, given their log-probabilities [V]."""
    heights = (scores.double() - scores.amax()) / settings.temperature
    probabilities = heights.softmax(-1).sort(descending=True).values
    starts = probabilities.cumsum(-1) - probabilities
    inside = (starts < settings.top_p) & (probabilities >= settings.min_p * probabilities[0]) & (probabilities > 0)
    return max(1, int(inside[: settings.top_k or None].sum()))


class Forced:
    """A decoding step that forces the first tokens, which keep their log-probabilities."""

    def __init__(self, step: Step, tokens: Sequence[int]) -> None:
        self.step, self.left = step, list(tokens)

    def start(self) -> Tensor:
        return self._only(self.step.start())

    def advance(self, tokens: Tensor, rows: Tensor, sentences: Tensor | None) -> Tensor:
        return self._only(self.step.advance(tokens, rows, sentences))

    def _only(self, scores: Tensor) -> Tensor:
        if not self.left:
            return scores
        token = self.left.pop(0)
        only = torch.full_like(scores, -torch.inf)
        only[:, token] = scores[:, token]
        return only


def new_step(anatomy: Anatomy, task: WritingTask) -> Step:
    """Returns the decoding step of the engine or, for a patched run, a step without a cache."""
    specials, model = anatomy.lexicons[anatomy.written].tokenizer.specials, anatomy.model
    after = NextToken(specials, task.settings.repetition_penalty)
    if task.edits or task.keep is not None:
        return UncachedStep(anatomy, task, after)
    if isinstance(model, Decoder):
        return WritingStep(model, [task.read], after)
    assert isinstance(model, EncoderDecoder)
    if task.read[-1] != anatomy.lexicons["source"].tokenizer.specials.end:  # tokens were reordered
        return UncachedStep(anatomy, task, after)
    return TranslationStep(model, [task.read[:-1]], specials, after)


class UncachedStep:
    """A decoding step without a cache, which is slow, but correct for all edits of the model."""

    def __init__(self, anatomy: Anatomy, task: WritingTask, after: NextToken) -> None:
        self.model, self.edits, self.after = anatomy.model, task.edits, after
        self.device = next(self.model.parameters()).device
        start = task.read
        if isinstance(self.model, EncoderDecoder):
            start = [anatomy.lexicons[anatomy.written].tokenizer.specials.begin]
            self.keep = None if task.keep is None else torch.tensor([task.keep], device=self.device)
            with observe(self.model, self.edits):
                self.memory = self.model.encode(torch.tensor([task.read], device=self.device), self.keep)
        self.tokens = torch.tensor([start], device=self.device)

    def start(self) -> Tensor:
        return self._next(self.tokens)

    def advance(self, tokens: Tensor, rows: Tensor, _sentences: Tensor | None) -> Tensor:
        rows, tokens = rows.to(self.device), tokens.to(self.device)[:, None]
        self.after.select(rows)
        self.tokens = torch.cat([self.tokens[rows], tokens], 1)
        return self._next(tokens)

    def _next(self, new: Tensor) -> Tensor:
        model, count = self.model, len(self.tokens)
        with observe(model, self.edits):
            if isinstance(model, EncoderDecoder):
                keep = None if self.keep is None else self.keep.expand(count, -1)
                logits = model.logits(model.decode(self.tokens, self.memory.expand(count, -1, -1), keep))
            else:
                logits = model(self.tokens)
        return self.after(logits[:, -1], new)


@dataclass
class Node:
    """A hypothesis in the beam search tree: its last token, and the log-probability of each of its tokens."""

    parent: int | None
    token: int
    gains: tuple[float, ...] = ()
    state: str = "alive"
    reason: str = ""

    @property
    def total(self) -> float:
        return sum(self.gains)


class BeamTree:
    """Records the beam search of one sentence, without impossible continuations."""

    def __init__(self, begin: int, width: int, limit: int) -> None:
        self.width, self.limit = width, limit
        dropped = f"not among the {width} best"
        self.outcomes = {"alive": ("alive", ""), "found": ("done", "ended"), "dropped": ("pruned", dropped)}
        self.nodes = [Node(None, begin)]
        self.alive = [0]  # indices of the nodes of the unfinished hypotheses
        self.final = 0

    def watch(self, _sentence: int, candidates: Sequence[Candidate], fates: Sequence[Fate]) -> None:
        """Records one step of the search."""
        before, self.alive, continued = self.alive, [], set[int]()
        for candidate, fate in zip(candidates, fates, strict=True):
            parent, possible = before[candidate.parent], candidate.total > -float("inf")
            if fate == "alive":
                self.alive.append(len(self.nodes) if possible else -1)
            if possible:
                continued.add(parent)
                gains = (*self.nodes[parent].gains, candidate.gain)
                self.nodes.append(Node(parent, candidate.token, gains, *self.outcomes[fate]))
        for place in {*before} - continued - {-1}:  # nodes without continuations
            self.nodes[place].state, self.nodes[place].reason = "pruned", "outdone at the next step"

    def finish(self, best: Hypothesis, end: int) -> None:
        """Records the outcome of the hypotheses that are unfinished at the end, and marks the best hypothesis."""
        for node in [self.nodes[place] for place in self.alive if place >= 0]:
            at_limit = len(node.gains) >= self.limit
            node.state, node.reason = ("done", "length limit") if at_limit else ("pruned", "search was settled")
        path = [*best.tokens, end] if best.finished else list(best.tokens)
        self.final = next(i for i, node in enumerate(self.nodes) if node.state == "done" and self.path(i) == path)
        self.nodes[self.final].state = "final"

    def path(self, place: int) -> list[int]:
        """Returns the tokens on the path from the root, which is excluded, to a node."""
        tokens = []
        at = self.nodes[place]
        while at.parent is not None:
            tokens.append(at.token)
            at = self.nodes[at.parent]
        return tokens[::-1]

    def to_json(self, lexicon: Lexicon, penalty: Penalty, form: str, alpha: float) -> dict[str, Any]:
        """Returns the tree as JSON for the page."""
        nodes = [
            {
                "i": i,
                "parent": node.parent,
                "t": len(node.gains),
                **lexicon.show(node.token),
                "log_probability": node.gains[-1] if node.gains else 0.0,
                "total": node.total,
                "score": node.total / penalty(len(node.gains)) if node.gains else 0.0,
                "state": node.state,
                "reason": node.reason,
            }
            for i, node in enumerate(self.nodes)
        ]
        return {"nodes": nodes, "width": self.width, "penalty": {"form": form, "alpha": alpha}, "final": self.final}
