"""Records the tree of a beam search: every continuation that was considered, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.decoding.beam_search import Candidate, Fate
from regard.decoding.hypotheses import Hypothesis, Penalty
from regard.explorer.displayed_tokens import Lexicon


@dataclass
class Node:
    """A hypothesis in the tree: its last token, and the log-probability of each of its tokens."""

    parent: int | None
    token: int
    gains: tuple[float, ...] = ()
    state: str = "alive"
    reason: str = ""

    @property
    def total(self) -> float:
        return sum(self.gains)

    def end(self, state: str, reason: str) -> None:
        self.state, self.reason = state, reason


class BeamTree:
    """Records the beam search of one sentence, without impossible continuations."""

    def __init__(self, begin: int, width: int, limit: int) -> None:
        self.width, self.limit = width, limit
        dropped = f"not among the {width} best"
        self.outcomes = {"alive": ("alive", ""), "found": ("done", "ended"), "dropped": ("pruned", dropped)}
        self.nodes = [Node(None, begin)]
        self.alive = [0]  # the nodes of the unfinished hypotheses, in their order
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
        for place in {*before} - continued - {-1}:  # none of their continuations was considered
            self.nodes[place].end("pruned", "outdone at the next step")

    def finish(self, best: Hypothesis, end: int) -> None:
        """Records the outcome of the hypotheses that were unfinished at the end, and marks the best one."""
        for node in [self.nodes[place] for place in self.alive if place >= 0]:
            at_limit = len(node.gains) >= self.limit
            node.end(*(("done", "length limit") if at_limit else ("pruned", "search was settled")))
        path = [*best.tokens, end] if best.finished else list(best.tokens)
        self.final = next(i for i, node in enumerate(self.nodes) if node.state == "done" and self.path(i) == path)
        self.nodes[self.final].state = "final"

    def path(self, place: int) -> list[int]:
        """Returns the tokens from the root, which is excluded, to a node."""
        tokens = []
        at = self.nodes[place]
        while at.parent is not None:
            tokens.append(at.token)
            at = self.nodes[at.parent]
        return tokens[::-1]

    def to_json(self, lexicon: Lexicon, penalty: Penalty, form: str, alpha: float) -> dict[str, Any]:
        """Returns the tree in the form that the page draws."""
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
        return {
            "nodes": nodes,
            "width": self.width,
            "penalty": {"form": form, "alpha": alpha},
            "final": self.final,
        }
