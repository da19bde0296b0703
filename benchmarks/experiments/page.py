"""docs/claims.md: what is claimed, what was found, and with which command; every figure comes from the logs.

The English sentences are here; those of docs/zh/claims.md, from the same figures, are in chinese.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.experiments import chinese, findings, parts, pictures, recurrence, variants
from benchmarks.experiments.findings import PILOT_COPYING, PILOT_LOG, PILOT_RECALL, copied, kept, share, table, times
from benchmarks.experiments.log import Claim, Figures, Wording, command, read_log

HEAD = """# Claims, measured

Much is said of the Transformer that few have seen. Here each claim is a short experiment on one core: small models, made-up texts, one seed
where nothing else is said. What does not show at this size is told as plainly as what does. `make claims` measures everything
again and writes this page from what is kept in `docs/claims/`; where the recurrent networks come from is in
[train](train.md#a-recurrent-network-to-compare-with), what the parts are in [The Transformer, line by line](transformer.md).
"""


def write_pages(docs: Path) -> list[Path]:
    """Writes claims.md in both languages, and the plots, of the claims that were measured."""
    (docs / "images").mkdir(parents=True, exist_ok=True)
    for claim in CLAIMS:
        if (docs / "claims" / f"{claim.name}.json").is_file():
            for end, picture in claim.draw(read_log(docs / "claims", claim.name)["figures"]).items():
                (docs / "images" / f"{picture_name(claim, end)}").write_text(picture, encoding="utf-8")
    for edition in EDITIONS:
        page = docs / edition.path
        page.parent.mkdir(exist_ok=True)
        page.write_text(make_page(docs / "claims", edition), encoding="utf-8", newline="\n")
    return [docs / edition.path for edition in EDITIONS]


def make_page(logs: Path, edition: Edition) -> str:
    """The page in one language, as Markdown."""
    measured = [claim for claim in CLAIMS if (logs / f"{claim.name}.json").is_file()]
    missing = [f"- {edition.words(claim).said} `{command(claim.name, 1)}`" for claim in CLAIMS if claim not in measured]
    rest = [f"## {edition.missing}\n", *missing, ""] if missing else []
    sections = (section(claim, read_log(logs, claim.name), edition) for claim in measured)
    return "\n".join([edition.head, *sections, *rest])


def section(claim: Claim, record: dict[str, Any], edition: Edition) -> str:
    figures, words = record["figures"], edition.words(claim)
    images = "../" * edition.path.count("/") + "images"
    shown = [f"![{words.title}]({images}/{picture_name(claim, end)})\n" for end in claim.draw(figures)]
    told = words.tell(figures) + "\n"
    return "\n".join([f"## {words.title}\n", f"> {words.said}\n", told, *shown, edition.made(record), ""])


def picture_name(claim: Claim, end: str) -> str:
    return f"claims-{claim.name}{f'-{end}' if end else ''}.svg"


@dataclass(frozen=True)
class Edition:
    """The page in one language."""

    path: str  # below docs/
    head: str
    missing: str  # the heading of what was not measured
    made: Callable[[dict[str, Any]], str]  # from a log: with what its figures were made
    words: Callable[[Claim], Wording]


# The sentences


def made(record: dict[str, Any]) -> str:
    """With what the figures of a claim were made."""
    where = f"{record['seconds']:.0f} s of one core of {record['machine']['processor']}, torch {record['versions']['torch']}"
    return f"`{record['command']}`, {record['date']}, {where}."


def verdict(holds: bool) -> str:
    return "It shows." if holds else "Here it does not show."


def tell_speed(figures: Figures) -> str:
    lengths, lstm, gru = figures["lengths"], "LSTM, attention", "GRU, attention"
    said = {
        (True, True): "It shows.",
        (True, False): "It shows beside the LSTM, and beside the GRU it does not.",
        (False, True): "It shows beside the GRU, and beside the LSTM it does not.",
        (False, False): "Here it does not show.",
    }[findings.is_faster(figures, lstm), findings.is_faster(figures, gru)]
    compared = (
        f"{times(figures, other, 'one', 0)} times the speed of the {other.partition(',')[0]} at {lengths[0]} tokens and {times(figures, other, 'one', -1)} times at {lengths[-1]}"
        for other in (gru, lstm)
    )
    sizes = ", ".join(
        f"{name.replace(',', ' with')} {found['parameters']:,}" for name, found in figures["models"].items()
    )
    return (
        f"{said} Training on one text at a time, the Transformer has {', and '.join(compared)} (both with attention); in batches of {figures['batch']:,} tokens, "
        f"{times(figures, gru, 'batch', 0)} and {times(figures, gru, 'batch', -1)} times that of the GRU, {times(figures, lstm, 'batch', 0)} and "
        f"{times(figures, lstm, 'batch', -1)} times that of the LSTM. The GRU is no "
        f"faster for long texts than for short ones: it goes from one position to the next. So does the LSTM, but on a CPU PyTorch hands all of it to oneDNN in one piece, "
        f"and it has fewer parameters than the Transformer. One core does little at once; devices that do much were not measured. Times are the processor's own, forward and backward. "
        f"Width 128, 2 + 2 layers; parameters: {sizes}. {pilot(recall=True, copying=True)}"
    )


def pilot(*, recall: bool = False, copying: bool = False) -> str:
    """Which Transformer it is, and why."""
    found, wrote = PILOT_RECALL, PILOT_COPYING
    told = [
        f"it found {found['transformer']} to {found['to']} % of the symbols again after blanks and was still learning, LSTM and GRU with attention {found['attending']} to {found['most']} % ({found['updates']} updates)",
        f"of {wrote['symbols']} symbols it copied {wrote['transformer']} %, the LSTM {wrote['attending']} % ({wrote['updates']} updates)",
    ]
    shown = "; ".join(each for each, wanted in zip(told, (recall, copying), strict=True) if wanted)
    where = "here, as where recall and copying are measured," if recall and copying else "here"
    return (
        f"The Transformer {where} is pre-norm with rotary positions, because in a pilot one with post-norm and sinusoids "
        f"lost to the LSTM with attention: {shown} ([log]({PILOT_LOG}))."
    )


def tell_memory(figures: Figures, across: str) -> str:
    """The accuracies as a table, and how many seconds of training they took."""
    rows = [
        [name, *map(share, found["accuracy"]), f"{found['seconds']:.0f}"] for name, found in figures["models"].items()
    ]
    return table(["model", *map(str, figures[across]), "seconds"], rows)


def tell_recall(figures: Figures) -> str:
    lost = {name: f"{100 * value:.1f}" for name, value in findings.lost(figures).items()}
    far = (
        "It is attention that reaches far, whatever stands around it. "
        if findings.most_lost_attending(figures) < 0.05
        else ""
    )
    return (
        f"{verdict(findings.fades(figures))} From {figures['distances'][0]} blank to {figures['longest']}, an LSTM without "
        f"attention loses {lost['LSTM']} points, a GRU {lost['GRU']}; with attention they lose "
        f"{lost['LSTM, attention']} and {lost['GRU, attention']}, the Transformer {lost['Transformer']}. "
        f"{far}All had {figures['updates']:,} updates; a distance of {figures['distances'][-1]} is one that training never had. "
        f"{pilot(recall=True)}\n\n" + tell_memory(figures, "distances")
    )


def tell_copying(figures: Figures) -> str:
    without, attending, transformer = copied(figures)
    behind = (
        "" if transformer >= attending else ", which after so few updates is behind the recurrent network that attends"
    )
    return (
        f"{verdict(findings.needs_attention(figures))} Of {figures['lengths'][-1]} symbols the better network without attention writes "
        f"{share(without)} right, the better one with it {share(attending)}, the Transformer {share(transformer)}{behind}. "
        f"All had {figures['updates']:,} updates. {pilot(copying=True)}\n\n" + tell_memory(figures, "lengths")
    )


def tell_saturation(figures: Figures) -> str:
    divided, plain, width = figures["divided"], figures["plain"], figures["widths"][-1]
    return (
        f"{verdict(findings.saturates(figures))} Of {figures['keys']} random keys as wide as {width}, the largest gets "
        f"{share(plain['largest'][-1])} of the weight if the products are taken as they are, and {share(divided['largest'][-1])} if they are "
        f"divided. The slope of the softmax, all that a gradient can pass through, is {plain['slope'][-1]:.3f} against "
        f"{divided['slope'][-1]:.3f}."
    )


def tell_residuals(figures: Figures) -> str:
    def alike(stack: Figures) -> str:
        layer = findings.same_after(stack)
        return "at no layer" if layer is None else f"after {layer} layers"

    pre, post, bare, naked = findings.stacks(figures)
    return (
        f"{verdict(findings.sums_matter(figures))} Of the gradient at the top of {figures['depth']} layers, there arrives at the bottom {kept(pre)} times as much "
        f"with residual sums and pre-norm, {kept(post)} with post-norm, {kept(bare)} without the sums, and {kept(naked)} without norms too: the norms alone "
        f"hold up most of its size. What the sums keep besides is the text: in a new model all positions of a text have become "
        f"one (mean cosine of two of them above 0.99) {alike(bare)} without sums, {alike(post)} with post-norm, {alike(pre)} with pre-norm "
        f"(Dong et al., 2021)."
    )


def tell_heads(figures: Figures) -> str:
    mean = dict(zip(figures["heads"], figures["mean"], strict=True))
    runs = zip(figures["heads"], figures["accuracy"], strict=True)
    helps = findings.heads_help(figures)
    said = "It shows, though not in every seed." if helps is None else verdict(helps)
    rows = [[str(heads), share(mean[heads]), ", ".join(map(share, right))] for heads, right in runs]
    return (
        f"{said} Width {figures['width']}, {figures['updates']:,} updates of {figures['sentences']} sentences of the demo, {figures['seeds']} seeds: "
        f"eight heads tell {share(mean[8])} of the next tokens of unseen sentences, one head {share(mean[1])}.\n\n"
        + table(["heads", "mean", "runs"], rows)
    )


def tell_permutation(figures: Figures) -> str:
    none, others = figures["apart"]["none"], findings.positions_apart(figures)
    return (
        f"{verdict(findings.order_is_lost(figures))} In a new encoder without positions, the states of a permuted text are the permuted states of the text, to {none:.0e} of their size, which is "
        f"rounding. With positions they are {min(others):.2f} to {max(others):.2f} of it apart."
    )


def tell_norms(figures: Figures) -> str:
    right, losses = figures["accuracy"], figures["losses"]
    end = {name: f"{values[-1]:.2f}" for name, values in losses.items()}
    rows = [[name, f"{losses[name][-1]:.3f}", share(right[name])] for name in losses]
    warm = findings.warmup_helps(figures)
    return (
        f"{verdict(findings.pre_norm_is_ahead(figures))} Without warm-up, pre-norm ends at {end['pre-norm, no warm-up']} and post-norm at "
        f"{end['post-norm, no warm-up']} nats a token. "
        f"{'Warm-up helps post-norm' if warm else 'Fifty updates of warm-up do not save post-norm at this rate and depth'}: it ends at "
        f"{end['post-norm']}, pre-norm with it at {end['pre-norm']}. The rate is {figures['rate']:g}, one for all; a lower "
        f"one would be kinder to post-norm.\n\n"
        + table(["", "loss of the last updates", "right, of unseen sentences"], rows)
    )


def tell_contexts(figures: Figures) -> str:
    rows = []
    for name, found in figures["words"].items():
        rows.append([f"{name}: cosine distance", *(f"{value:.2g}" for value in found["apart"])])
        rows.append([f"{name}: il or elle", *map(share, found["guessed"])])
    it = figures["words"]["it"]
    return (
        f'{verdict(findings.state_knows_more(figures))} In "{figures["texts"][0]}" and with *bridge* for *street*, *it* has one word vector, and in French it is *elle* in the one '
        f"and *il* in the other. After two layers of the glass model, its two states are {it['apart'][-1]:.2g} apart (cosine distance; *it* and "
        f"*wide* are {figures['different words'][-1]:.2g} apart): little, but it lies where it counts. Over {figures['sentences']} sentences, a linear map of the state of *it* tells *il* from "
        f"*elle* in {share(it['guessed'][-1])}; the static word vector, the same in all of them, in {share(it['guessed'][0])}. The adjective's word "
        f"vector knows something of its own, since not everything can be tired; its state knows more.\n\n"
        + table(["", *figures["levels"]], rows)
    )


def tell_cost(figures: Figures) -> str:
    lengths, crossing = figures["lengths"], findings.crossing(figures)
    dearer = f"from {crossing} tokens on" if crossing else "only from a length on that was not measured"
    constant, linear, square = figures["fit"]
    return (
        f"{verdict(findings.is_quadratic(figures))} From {lengths[-3]:,} to {lengths[-1]:,} tokens the time grows with the power {figures['exponent']}. "
        f"The fit is {square:.2g} n² {linear:+.2g} n {constant:+.2g} milliseconds and off by at most {share(figures['error'])}. "
        f"The feed-forward layer grows with n; attention costs more than it {dearer} "
        f"(width 128, four heads), and less below: sentences are short, and there the square does not matter."
    )


CLAIMS = [
    Claim(
        "speed",
        recurrence.measure_speed,
        pictures.draw_speed,
        Wording(
            "Positions in parallel",
            "Attention trains on all positions at once; recurrent networks go from one to the next.",
            tell_speed,
        ),
        chinese.CLAIMS["speed"],
    ),
    Claim(
        "recall",
        recurrence.measure_recall,
        pictures.draw_recall,
        Wording("What is far away", "Attention keeps what lies far back; in recurrent networks it fades.", tell_recall),
        chinese.CLAIMS["recall"],
    ),
    Claim(
        "copying",
        recurrence.measure_copying,
        pictures.draw_copying,
        Wording(
            "A text in one vector", "Without attention all of a text has to fit into the last state.", tell_copying
        ),
        chinese.CLAIMS["copying"],
    ),
    Claim(
        "saturation",
        parts.measure_saturation,
        pictures.draw_saturation,
        Wording("Divided by the root of d_k", "The scale keeps the softmax out of saturation.", tell_saturation),
        chinese.CLAIMS["saturation"],
    ),
    Claim(
        "residuals",
        parts.measure_residuals,
        pictures.draw_residuals,
        Wording("Residual sums", "They keep gradients alive in deep stacks.", tell_residuals),
        chinese.CLAIMS["residuals"],
    ),
    Claim(
        "heads",
        variants.measure_heads,
        pictures.draw_heads,
        Wording("One head or eight", "Several heads beat one of the same width in all.", tell_heads),
        chinese.CLAIMS["heads"],
    ),
    Claim(
        "permutation",
        parts.measure_permutation,
        pictures.draw_permutation,
        Wording(
            "Positions", "Without positions, permuting the input permutes the output, and no more.", tell_permutation
        ),
        chinese.CLAIMS["permutation"],
    ),
    Claim(
        "norms",
        variants.measure_norms,
        pictures.draw_norms,
        Wording("Norm before or after", "Pre-norm trains without warm-up, where post-norm needs it.", tell_norms),
        chinese.CLAIMS["norms"],
    ),
    Claim(
        "contexts",
        parts.measure_contexts,
        pictures.draw_contexts,
        Wording(
            "One word, two contexts",
            "A word has one vector in the table, and another one in every context after attention.",
            tell_contexts,
        ),
        chinese.CLAIMS["contexts"],
    ),
    Claim(
        "cost",
        parts.measure_cost,
        pictures.draw_cost,
        Wording("The price: quadratic", "The cost of attention grows with the square of the length.", tell_cost),
        chinese.CLAIMS["cost"],
    ),
]
EDITIONS = [
    Edition("claims.md", HEAD, "Not measured yet", made, lambda claim: claim.english),
    Edition("zh/claims.md", chinese.HEAD, chinese.MISSING, chinese.made, lambda claim: claim.chinese),
]
