"""What people read of the measured quality: from the log and the scores of each run to a page and its plots."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.plots import Line, draw
from benchmarks.recipes import RECIPES
from benchmarks.records import ROOT
from regard.errors import InputError

PUBLISHED = {"de": 41.02, "fr": 61.80}  # of multi30k, from English
MOST_PARAMETERS = 3_000_000  # of the recipes that have a published score
SEEDS = 3
"""Seeds from which on runs have a mean and are compared with a published score: two seeds differ by up to 0.8 BLEU."""
INTRODUCTION = """# Quality on small data

Made by `python benchmarks/quality.py`, which trains the settings in `recipes/` and scores them with sacrebleu. The
weights of a run are chosen on the dev set alone; the test sets are translated when it is over, and nothing is chosen
by them.

- **tokenised**: trained on Multi30k's `*.lc.norm.tok.*` files and compared with them, as published scores are.
- **raw**: trained on the text as people write it; detokenised and cased.
- **published**: Transformer-Tiny, text only, tokenised and lower-cased, test_2016_flickr (Wu et al., 2021).
- **mean** and **range** are over at least three seeds; only these are compared with the published score. Runs with
  fewer seeds are records: two seeds of one recipe differ by up to 0.8, and a difference below that is not a gain.
- **minutes** pass from the start of a run, preparation and evaluations included; beside them, those **of updates**.
- **by consensus**: mean BLEU of `--consensus 24` ([what that is](translate.md)) in the place of a beam of 5.
- **multi30k-both** has two parts, German and French together, then one of them. What ends in **-risk** had a third
  part, minimum risk training, which brought nothing on average and is no longer in Regard
  ([log](log.md#learning-from-the-risk-of-its-own-translations)). Updates and minutes are of all parts.
- Runs of a row differ in their seeds, and where a list below says so, which compares each with its recipe as it was
  then.
"""
AGAIN = """## Measured again

Somebody else measured three recipes again with another seed (7), and on the test sets of other years. The scores of
`multi30k-both` held. German alone had 40.1 on test2016, our one run 41.0. The last part (`-risk`) brought
nothing on average. [The figures](log.md#measured-again-with-another-seed) are one seed, too. The records of our seeds
stay below, as what they are; those of German, in two parts or more, share one first part.
"""
AS_THEY_ARE = "## The recipes as they are\n"
OTHERWISE = """## With other settings

What recipes had before, and what was tried and not taken; the [log](log.md) tells why.
"""

Record = dict[str, Any]
Groups = dict[tuple[str, str], list[Record]]
Course = list[tuple[float | None, float | None, float]]  # seconds since the start, of updates, and BLEU then


def read_log(path: Path) -> list[Record]:
    """The events in a log, without what a kill cut off."""
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []:
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def finished(log: Sequence[Record]) -> Record | None:
    """The last word of a run that came to its end."""
    return next((line for line in reversed(log) if line["event"] == "Finished" and line["complete"]), None)


def course(log: Sequence[Record], direction: str = "") -> Record:
    """What the log of a finished run tells: its evaluations, all or of one direction, how long it took, and where."""
    evaluations = {line["step"]: line for line in log if line["event"] == "Evaluation"}
    wanted, last = ("step", "wall", "seconds", "scores", "best"), finished(log) or {}
    session = next((line for line in log if line["event"] == "Session"), {})
    found = {name: session.get(name) for name in ("date", "machine", "versions", "command")}
    found |= {name: last.get(name) for name in ("step", "wall", "seconds")}
    told: list[Record] = [{name: line.get(name) for name in wanted} for line in evaluations.values()]
    for each in told if direction else []:
        each["scores"] = {name: each["scores"][f"{name} {direction}"] for name in ("bleu", "chrf")}
    return found | {"evaluations": told}


# The page


def write_report(kept: Path, base: Path) -> Path:
    """Writes BASE.md about all runs that were ever scored, and the plots into images/ beside it.

    What it says of a run stays in BASE/, in git: runs of other days and other machines stand beside those in `kept`.
    """
    base.mkdir(parents=True, exist_ok=True)
    for path in kept.glob("*/scores.json"):
        shutil.copyfile(path, base / f"{path.parent.name}.json")
    records = [json.loads(path.read_text(encoding="utf-8")) for path in base.glob("*.json")]
    if not records:
        raise InputError(f"{kept}: nothing is measured yet: give --data, without --report-only")
    groups = grouped(records)
    parts = [INTRODUCTION, AGAIN]
    for heading, as_they_are in ((AS_THEY_ARE, True), (OTHERWISE, False)):
        if found := summary(groups, as_they_are):
            parts += [heading, found]
    parts += [runs(groups), times(groups), "## The course of training\n"]
    for (recipe, form), its in groups.items():
        picture = base.parent / "images" / f"{base.name}-{recipe}-{form}.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        told = [each for each in its if each["evaluations"]]
        told = list(filter(current, told)) or told  # what recipes had before would only hide what they have
        if told:
            picture.write_text(plot(f"{recipe}, {form}", told, level(recipe, form)), encoding="utf-8")
        if picture.exists():
            parts.append(f"![BLEU of {recipe}, {form}, over the minutes of training](images/{picture.name})\n")
    parts += [
        outputs(f"{recipe}, {form}", best_on_dev(its)) for (recipe, form), its in groups.items() if not tests(its)
    ]
    page = base.with_name(f"{base.name}.md")
    page.write_text("\n".join(part for part in parts if part), encoding="utf-8")
    if page.parent == ROOT / "docs":
        from benchmarks.page import write_page

        write_page()  # which has a summary of it
    return page


def grouped(records: Iterable[Record]) -> Groups:
    """The runs by recipe and form, in the order of the page."""
    groups: Groups = {}
    for record in sorted(records, key=lambda each: (each["recipe"], each["form"] == "raw", each["seed"], each["name"])):
        groups.setdefault((record["recipe"], record["form"]), []).append(record)
    return groups


def summary(groups: Groups, as_it_is: bool) -> str:
    """A row for each set and length of a run, so that means are of runs that are alike but for their seeds.

    Of runs with the settings that their recipe has now, or of all others. Fewer than `SEEDS` seeds have no mean.
    """
    rows: list[list[object]] = []
    for (recipe, form), its in groups.items():
        for name in tests(its) or [its[0]["dev"]]:
            first, published = name in (its[0]["dev"], *tests(its)[:1]), level(recipe, form)
            for length, like in ((length, like) for (length, now, _), like in alike(its).items() if now == as_it_is):
                found = [each["sets"][name]["BLEU"]["value"] for each in like if name in each["sets"]]
                agreed = [each for each in like if name in each.get("agreed", {})]
                rows.append([recipe, form, name, length, seeds(like)])
                if seeds(like) < SEEDS:
                    rows[-1] += ["", "", "", "", ", ".join(f"{value:.2f}" for value in found)]
                    continue
                rows[-1] += [f"{statistics.fmean(found):.2f}", f"{min(found):.2f} to {max(found):.2f}"]
                rows[-1] += [f"{published:.2f}" if published and first else ""]
                rows[-1] += [by_consensus(agreed, name) if seeds(agreed) >= SEEDS else "", ""]
    heads = ["recipe", "form", "set", "updates", "seeds", "BLEU, mean", "range", "published", "by consensus"]
    return table([*heads, "records of fewer seeds"], rows) if rows else ""


def seeds(its: Iterable[Record]) -> int:
    return len({each["seed"] for each in its})


def alike(its: Sequence[Record]) -> dict[tuple[str, bool, str], list[Record]]:
    """The runs by their updates, the shortest first, by whether the recipe has their settings now, and by these."""
    groups: dict[tuple[str, bool, str], list[Record]] = {}
    for each in sorted(its, key=lambda each: sum(part["step"] for part in parts(each))):
        now, kind = current(each), json.dumps(each.get("kind", {}), sort_keys=True)
        groups.setdefault((updates(each), now, "" if now else kind), []).append(each)
    return groups


def current(record: Record) -> bool:
    """Tells whether a run has the settings that its recipe has now; early records do not say, and recipes may go."""
    recipe = RECIPES.get(record["recipe"])
    return recipe is not None and recipe.is_as(record.get("kind", {}))


def updates(record: Record) -> str:
    return " + ".join(f"{part['step']:,}" for part in parts(record))


def parts(record: Record) -> list[Record]:
    """The parts of a recipe, the first one first: each tells what went before it."""
    return [*(parts(record["before"]) if "before" in record else []), record]


def by_consensus(its: Sequence[Record], name: str) -> str:
    """The mean of runs whose translations were also chosen by consensus."""
    return f"{statistics.fmean(each['agreed'][name]['BLEU']['value'] for each in its):.2f}"


def runs(groups: Groups) -> str:
    """A row for each run and set, and what the numbers are made with."""
    rows: list[list[object]] = []
    made: dict[str, None] = {}
    others: list[str] = []
    for (recipe, form), its in groups.items():
        for each in its:
            size = f"{each['parameters']:,}"
            if level(recipe, "tokenised"):
                fits = each["parameters"] <= MOST_PARAMETERS
                size += f" ({'within' if fits else '**more than**'} {MOST_PARAMETERS:,})"
            if each["differences"]:
                others.append(f"- {recipe}, {form}, {label(each)} has {plain('; '.join(each['differences']))}")
            for name, found in each["sets"].items():
                rows.append([recipe, form, label(each), updates(each), *map(minutes, since_the_start(each, each))])
                rows[-1] += [size, name, *(f"{found[m]['value']:.2f}" if m in found else "" for m in ("BLEU", "chrF"))]
                agreed = each.get("agreed", {}).get(name)
                rows[-1].append(f"{agreed['BLEU']['value']:.2f}" if agreed else "")
                search = f"beam {each['decoding']['beam']}, length penalty {each['decoding']['length_penalty']:g}"
                signatures = ", ".join(f"{metric} `{score['signature']}`" for metric, score in found.items())
                made[f"- {recipe}, {form}: {signatures}; {search}"] = None
    heads = [
        "recipe",
        "form",
        "run",
        "updates",
        "minutes",
        "of updates",
        "parameters",
        "set",
        "BLEU",
        "chrF",
        "by consensus",
    ]
    return "\n".join(["## Every run\n", table(heads, rows), *made, "", *machines(groups), *others, ""])


def machines(groups: Groups) -> list[str]:
    found: dict[str, None] = {}
    for each in (each for its in groups.values() for each in its):
        if each["machine"]:
            packages = ", ".join(f"{name} {number}" for name, number in each["versions"].items())
            found[f"{each['machine']['processor']}, {each['machine']['cores']} cores; {packages}"] = None
    return [f"Machine: {machine}.\n" for machine in found]


def times(groups: Groups) -> str:
    """When the published score was passed on the dev set and on the test set, by how many of the seeds."""
    rows = []
    for (recipe, form), its in groups.items():
        goal = round(level(recipe, form) or 0.0, 1)
        for (length, *_), like in alike(its).items() if goal else ():
            if seeds(like) >= SEEDS:
                rows.append([recipe, length, goal, *reached(goal, like, dev_course)])
                rows[-1] += reached(goal, like, test_course)
                rows[-1][-1] = rows[-1][-1] and f"{'' if all(map(has_curve, like)) else 'at most '}{rows[-1][-1]}"
    if not rows:
        return ""
    note = """The dev set is translated greedily while training and scored with sacrebleu's 13a tokenizer, on as many
pairs as `training.evaluate_pairs` says. The test set is translated afterwards, with the search of the final model, by
the weights that were best on the dev set at each moment, and by the final ones. Minutes are of updates.
"""
    heads = ["recipe", "updates", "BLEU", "seeds that reach it on dev", "minutes", "on test", "minutes"]
    return "\n".join(["## Time to the published score\n", note, table(heads, rows)])


def reached(goal: float, its: Sequence[Record], course: Callable[[Record], Course]) -> list[str]:
    """How many runs pass a score, and after how many minutes of updates."""
    found = [when for each in its if (when := first_above(goal, course(each))) is not None]
    told = " to ".join(dict.fromkeys(minutes(each) for each in (min(found), max(found)))) if found else ""
    return [f"{len(found)} of {len(its)}", told]


def has_curve(record: Record) -> bool:
    """Whether all weights that were best on the dev set have been scored on the test set."""
    return {str(each["step"]) for each in record["evaluations"] if each["best"]} == set(record["curve"])


def before(record: Record) -> Record:
    """All that went before this part of a recipe, as one; before the first, nothing."""
    if "before" not in record:
        return {"step": 0, "wall": 0.0, "seconds": 0.0, "evaluations": []}
    last = record["before"]
    wall, seconds = since_the_start(last, last)
    told = [dict(each, **dict(zip(CLOCKS, since_the_start(last, each), strict=True))) for each in last["evaluations"]]
    earlier = before(last)
    return {
        "step": earlier["step"] + last["step"],
        "wall": wall,
        "seconds": seconds,
        "evaluations": [*earlier["evaluations"], *told],
    }


CLOCKS = ("wall", "seconds")


def since_the_start(record: Record, moment: Record) -> tuple[float | None, float | None]:
    """When something happened, on the clock and in updates, with what went before."""
    told = [(before(record)[name], moment[name]) for name in CLOCKS]
    wall, seconds = (None if None in both else sum(both) for both in told)
    return wall, seconds


def dev_course(record: Record) -> Course:
    first = [(each["wall"], each["seconds"], each["scores"]["bleu"]) for each in before(record)["evaluations"]]
    return first + [(*since_the_start(record, each), each["scores"]["bleu"]) for each in record["evaluations"]]


def test_course(record: Record) -> Course:
    """The test scores of the weights that were kept along the way, and of the final ones."""
    if not record["tests"]:
        return []
    when = {str(each["step"]): since_the_start(record, each) for each in record["evaluations"]}
    kept = sorted(record["curve"], key=int)
    final = record["sets"][record["tests"][0]]["BLEU"]["value"]
    return [*((*when[step], record["curve"][step]) for step in kept), (*since_the_start(record, record), final)]


def first_above(goal: float, course: Course) -> float | None:
    """Seconds of updates until a score is passed, if it ever is."""
    return next((seconds for _, seconds, value in course if value >= goal and seconds is not None), None)


def plot(title: str, its: Sequence[Record], published: float | None) -> str:
    """BLEU over time: a colour for each run, solid on the test set, dashed on the dev set."""
    clock = all(each["wall"] is not None for each in its)
    lines = []
    for number, each in enumerate(its):
        for what, course in ((each["tests"][:1], test_course(each)), (["dev, greedy"], dev_course(each))):
            found = [(wall if clock else seconds, value) for wall, seconds, value in course]
            points = [(passed / 60, value) for passed, value in found if passed is not None]
            tested = what == each["tests"][:1]
            if len(points) > 1 or (tested and points):  # of the test set, the end alone is told too
                lines.append(Line(f"{label(each)}, {what[0]}", points, number, dashed=not tested))
    across = "minutes since the start" if clock else "minutes of updates"
    published = published if seeds(its) >= SEEDS else None
    return draw(
        f"{title}: BLEU", across, "BLEU", lines, (f"published: {published:.2f}", published) if published else None
    )


def outputs(title: str, record: Record) -> str:
    heads = ["source", "output", "reference"]
    rows = [[plain(text) for text in lines] for lines in record["samples"]]
    note = f"Of the run that is best on dev ({label(record)}), evenly spaced over {record['dev']}."
    return f"## Outputs: {title}\n\n{note}\n\n{table(heads, rows)}"


def best_on_dev(its: Sequence[Record]) -> Record:
    return max(its, key=lambda each: each["sets"][each["dev"]]["BLEU"]["value"])


def tests(its: Sequence[Record]) -> list[str]:
    return sorted({name for each in its for name in each["tests"]})


def level(recipe: str, form: str) -> float | None:
    tokenised = recipe.startswith("multi30k") and form == "tokenised"
    return PUBLISHED.get(recipe.removesuffix("-risk")[-2:]) if tokenised else None


def label(record: Record) -> str:
    """The seed, and the name of a run that has one of its own."""
    own, name = f"seed {record['seed']}", record["name"].split(".", 2)[2]
    return own if name == str(record["seed"]) and not record["adopted"] else f"{name}, {own}"


def minutes(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds / 60:.1f}"


def plain(text: str) -> str:
    """Text that Markdown takes as it is."""
    return re.sub(r"[\\`*_\[\]|~]", lambda found: f"&#{ord(found[0])};", escape(text, quote=False))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
