"""Writes docs/quality.md and its plots from the records of runs; quality.md beside this file has the text."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.plots import Line, draw
from benchmarks.recipes import RECIPES
from benchmarks.records import DOCS
from benchmarks.tables import markdown_table as table, plain
from regard.errors import InputError

PUBLISHED = {"de": 41.02, "fr": 61.80}  # of multi30k, from English
MOST_PARAMETERS = 3_000_000  # of the recipes that have a published score
SEEDS = 3
"""With this many seeds runs have a mean and are compared with a published score: two seeds differ by up to 0.8 BLEU."""
CLOCKS = ("wall", "seconds")

Record = dict[str, Any]
Groups = dict[tuple[str, str], list[Record]]
Course = list[tuple[float | None, float | None, float]]  # seconds since the start, of updates, and BLEU then


def read_log(path: Path) -> list[Record]:
    """Returns the events in a log, without a line that a kill cut off."""
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []:
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def finished(log: Sequence[Record]) -> Record | None:
    """Returns the last event of a run that came to its end."""
    return next((line for line in reversed(log) if line["event"] == "Finished" and line["complete"]), None)


def course(log: Sequence[Record], direction: str = "") -> Record:
    """Returns the evaluations in the log of a finished run, all or of one direction, its times, and its machine."""
    evaluations = {line["step"]: line for line in log if line["event"] == "Evaluation"}
    wanted, last = ("step", "wall", "seconds", "scores", "best"), finished(log) or {}
    session = next((line for line in log if line["event"] == "Session"), {})
    found = {name: session.get(name) for name in ("date", "machine", "versions", "command")}
    found |= {name: last.get(name) for name in ("step", "wall", "seconds")}
    kept: list[Record] = [{name: line.get(name) for name in wanted} for line in evaluations.values()]
    for each in kept if direction else []:
        each["scores"] = {name: each["scores"][f"{name} {direction}"] for name in ("bleu", "chrf")}
    return found | {"evaluations": kept}


# The page


def write_report(runs_folder: Path, base: Path) -> Path:
    """Writes BASE.md about all runs that were ever scored, and the plots into images/ beside it.

    The records of the runs are copied to BASE/, in git: runs of other days and machines join those in `runs_folder`.
    """
    base.mkdir(parents=True, exist_ok=True)
    for path in runs_folder.glob("*/scores.json"):
        shutil.copyfile(path, base / f"{path.parent.name}.json")
    records = [json.loads(path.read_text(encoding="utf-8")) for path in base.glob("*.json")]
    if not records:
        raise InputError(f"{runs_folder}: there are no runs yet: pass --data, without --report-only")
    groups = grouped(records)
    head, *found = re.split(
        r"^<!-- (\w+) -->\n", Path(__file__).with_name("quality.md").read_text(), flags=re.MULTILINE
    )
    bodies = {
        "recipes": summary(groups, as_it_is=True),
        "others": summary(groups, as_it_is=False),
        "runs": runs(groups),
        "times": times(groups),
        "plots": plots(groups, base),
    }
    parts = [about + bodies[name] for name, about in zip(found[::2], found[1::2], strict=True) if bodies[name]]
    samples = {key: its for key, its in groups.items() if not tests(its)}
    parts += [outputs(f"{recipe}, {form}", best_on_dev(its)) for (recipe, form), its in samples.items()]
    page = base.with_name(f"{base.name}.md")
    page.write_text("\n".join([head.rstrip() + "\n", *parts]), encoding="utf-8")
    if page.parent == DOCS:
        from benchmarks.benchmarks_page import write_page

        write_page()  # it has a summary of this page
    return page


def grouped(records: Iterable[Record]) -> Groups:
    """Returns the runs by recipe and form, in the order of the page."""
    groups: Groups = {}
    for record in sorted(records, key=lambda each: (each["recipe"], each["form"] == "raw", each["seed"], each["name"])):
        groups.setdefault((record["recipe"], record["form"]), []).append(record)
    return groups


def summary(groups: Groups, as_it_is: bool) -> str:
    """Returns a row for each set and length of a run, so that means are of runs that differ in their seeds only.

    The runs have the settings that their recipe has now, or others. With fewer than `SEEDS` seeds there is no mean.
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
                consensus = [each["agreed"][name]["BLEU"]["value"] for each in agreed]
                rows[-1] += [f"{statistics.fmean(consensus):.2f}" if seeds(agreed) >= SEEDS else "", ""]
    heads = ["recipe", "form", "set", "updates", "seeds", "BLEU, mean", "range", "published", "by consensus"]
    return table([*heads, "records of fewer seeds"], rows) if rows else ""


def seeds(its: Iterable[Record]) -> int:
    return len({each["seed"] for each in its})


def alike(its: Sequence[Record]) -> dict[tuple[str, bool, str], list[Record]]:
    """Returns the runs by their updates, the fewest first, by whether they have the recipe's settings, and by these."""
    groups: dict[tuple[str, bool, str], list[Record]] = {}
    for each in sorted(its, key=lambda each: sum(part["step"] for part in parts_of(each))):
        now, kind = current(each), json.dumps(each.get("kind", {}), sort_keys=True)
        groups.setdefault((updates(each), now, "" if now else kind), []).append(each)
    return groups


def current(record: Record) -> bool:
    """Tells whether a run has the settings that its recipe has now; early records do not say, and recipes may go."""
    recipe = RECIPES.get(record["recipe"])
    return recipe is not None and recipe.is_as(record.get("kind", {}))


def updates(record: Record) -> str:
    return " + ".join(f"{part['step']:,}" for part in parts_of(record))


def parts_of(record: Record) -> list[Record]:
    """Returns the parts of a recipe's run, the first one first."""
    return [*(parts_of(record["before"]) if "before" in record else []), record]


def runs(groups: Groups) -> str:
    """Returns a row for each run and set, then signatures, machines, and differences from the recipe."""
    rows: list[list[object]] = []
    signatures, machines, others = dict[str, None](), dict[str, None](), list[str]()
    for each in (each for its in groups.values() for each in its):
        recipe, form, size = each["recipe"], each["form"], f"{each['parameters']:,}"
        if level(recipe, "tokenised"):
            fits = each["parameters"] <= MOST_PARAMETERS
            size += f" ({'within' if fits else '**more than**'} {MOST_PARAMETERS:,})"
        if each["differences"]:
            others.append(f"- {recipe}, {form}, {label(each)} has {plain('; '.join(each['differences']))}")
        if each["machine"]:
            packages = ", ".join(f"{name} {number}" for name, number in each["versions"].items())
            machine = f"{each['machine']['processor']}, {each['machine']['cores']} cores; {packages}"
            machines[f"Machine: {machine}.\n"] = None
        for name, found in each["sets"].items():
            rows.append([recipe, form, label(each), updates(each), *map(minutes, since_the_start(each, each))])
            rows[-1] += [size, name, *(f"{found[m]['value']:.2f}" if m in found else "" for m in ("BLEU", "chrF"))]
            agreed = each.get("agreed", {}).get(name)
            rows[-1].append(f"{agreed['BLEU']['value']:.2f}" if agreed else "")
            search = f"beam {each['decoding']['beam']}, length penalty {each['decoding']['length_penalty']:g}"
            metrics = ", ".join(f"{metric} `{score['signature']}`" for metric, score in found.items())
            signatures[f"- {recipe}, {form}: {metrics}; {search}"] = None
    heads = ["recipe", "form", "run", "updates", "minutes", "of updates", "parameters", "set", "BLEU", "chrF"]
    return "\n".join([table([*heads, "by consensus"], rows), *signatures, "", *machines, *others, ""])


def times(groups: Groups) -> str:
    """Returns when the published score was passed on the dev set and on the test set, by how many of the seeds."""
    rows = []
    for (recipe, form), its in groups.items():
        goal = round(level(recipe, form) or 0.0, 1)
        for (length, *_), like in alike(its).items() if goal else ():
            if seeds(like) >= SEEDS:
                rows.append([recipe, length, goal, *reached(goal, like, dev_course)])
                rows[-1] += reached(goal, like, test_course)
                rows[-1][-1] = rows[-1][-1] and f"{'' if all(map(has_curve, like)) else 'at most '}{rows[-1][-1]}"
    heads = ["recipe", "updates", "BLEU", "seeds that reach it on dev", "minutes", "on test", "minutes"]
    return table(heads, rows) if rows else ""


def reached(goal: float, its: Sequence[Record], course: Callable[[Record], Course]) -> list[str]:
    """Returns how many runs pass a score, and after how many minutes of updates."""
    found = [when for each in its if (when := first_above(goal, course(each))) is not None]
    span = " to ".join(dict.fromkeys(minutes(each) for each in (min(found), max(found)))) if found else ""
    return [f"{len(found)} of {len(its)}", span]


def has_curve(record: Record) -> bool:
    """Tells whether all weights that were best on the dev set have been scored on the test set."""
    return {str(each["step"]) for each in record["evaluations"] if each["best"]} == set(record["curve"])


def before(record: Record) -> Record:
    """Returns the sum of all parts before this one of a recipe; before the first, nothing."""
    if "before" not in record:
        return {"step": 0, "wall": 0.0, "seconds": 0.0, "evaluations": []}
    last = record["before"]
    wall, seconds = since_the_start(last, last)
    moved = [dict(each, **dict(zip(CLOCKS, since_the_start(last, each), strict=True))) for each in last["evaluations"]]
    earlier = before(last)
    sums = {"step": earlier["step"] + last["step"], "wall": wall, "seconds": seconds}
    return {**sums, "evaluations": [*earlier["evaluations"], *moved]}


def since_the_start(record: Record, moment: Record) -> tuple[float | None, float | None]:
    """Returns when something happened, on the clock and in updates, earlier parts included."""
    pairs = [(before(record)[name], moment[name]) for name in CLOCKS]
    wall, seconds = (None if None in pair else sum(pair) for pair in pairs)
    return wall, seconds


def dev_course(record: Record) -> Course:
    first = [(each["wall"], each["seconds"], each["scores"]["bleu"]) for each in before(record)["evaluations"]]
    return first + [(*since_the_start(record, each), each["scores"]["bleu"]) for each in record["evaluations"]]


def test_course(record: Record) -> Course:
    """Returns the test scores of the weights that were stored along the way, and of the final ones."""
    if not record["tests"]:
        return []
    when = {str(each["step"]): since_the_start(record, each) for each in record["evaluations"]}
    final = record["sets"][record["tests"][0]]["BLEU"]["value"]
    curve = [(*when[step], record["curve"][step]) for step in sorted(record["curve"], key=int)]
    return [*curve, (*since_the_start(record, record), final)]


def first_above(goal: float, course: Course) -> float | None:
    """Returns the seconds of updates until a score is passed, if it ever is."""
    return next((seconds for _, seconds, value in course if value >= goal and seconds is not None), None)


def plots(groups: Groups, base: Path) -> str:
    """Draws the course of each recipe into images/ beside the page; returns the lines that show the pictures."""
    lines, images = [], base.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    for (recipe, form), its in groups.items():
        picture = images / f"{base.name}-{recipe}-{form}.svg"
        drawn = [each for each in its if each["evaluations"]]
        drawn = list(filter(current, drawn)) or drawn  # earlier settings would only hide the current ones
        if drawn:
            picture.write_text(plot(f"{recipe}, {form}", drawn, level(recipe, form)), encoding="utf-8")
        if picture.exists():
            lines.append(f"![BLEU of {recipe}, {form}, over the minutes of training](images/{picture.name})\n")
    return "\n".join(lines)


def plot(title: str, its: Sequence[Record], published: float | None) -> str:
    """Draws BLEU over time: a colour for each run, solid on the test set, dashed on the dev set."""
    clock = all(each["wall"] is not None for each in its)
    lines = []
    for number, each in enumerate(its):
        for what, course in ((each["tests"][:1], test_course(each)), (["dev, greedy"], dev_course(each))):
            found = [(wall if clock else seconds, value) for wall, seconds, value in course]
            points = [(passed / 60, value) for passed, value in found if passed is not None]
            tested = what == each["tests"][:1]
            if len(points) > 1 or (tested and points):  # of the test set, the end alone is drawn too
                lines.append(Line(f"{label(each)}, {what[0]}", points, number, dashed=not tested))
    across = "minutes since the start" if clock else "minutes of updates"
    mark = (f"published: {published:.2f}", published) if published and seeds(its) >= SEEDS else None
    return draw(f"{title}: BLEU", across, "BLEU", lines, mark)


def outputs(title: str, record: Record) -> str:
    rows = [[plain(text) for text in lines] for lines in record["samples"]]
    note = f"These are outputs of the run that is best on dev ({label(record)}), evenly spaced over {record['dev']}."
    return f"## Outputs: {title}\n\n{note}\n\n{table(['source', 'output', 'reference'], rows)}"


def best_on_dev(its: Sequence[Record]) -> Record:
    return max(its, key=lambda each: each["sets"][each["dev"]]["BLEU"]["value"])


def tests(its: Sequence[Record]) -> list[str]:
    return sorted({name for each in its for name in each["tests"]})


def level(recipe: str, form: str) -> float | None:
    """Returns the published score of a recipe."""
    tokenised = recipe.startswith("multi30k") and form == "tokenised"
    return PUBLISHED.get(recipe.removesuffix("-risk")[-2:]) if tokenised else None


def label(record: Record) -> str:
    """Returns the seed, after the name of a run that has one of its own."""
    own, name = f"seed {record['seed']}", record["name"].split(".", 2)[2]
    return own if name == str(record["seed"]) and not record["adopted"] else f"{name}, {own}"


def minutes(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds / 60:.1f}"
