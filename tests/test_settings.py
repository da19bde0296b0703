"""Settings: one declaration is a TOML key, a flag, a check and a line of help."""

from __future__ import annotations

import dataclasses
import re
from math import nextafter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, strategies as st

from regard.errors import SettingsError
from regard.preparation.chosen_settings import NAMES, PRESETS, TASKS, choose_preset, load
from regard.settings import DataSettings, DecodingSettings, ModelSettings, Settings, TokenizerSettings, TrainingSettings
from regard.settings.option_fields import Bounds, Option, Section, build, dump, merge, options
from regard.settings.recorded_settings import find_removed, load_recorded, read_toml
from tests.examples import examples

OPTIONS = {option.path: option for option in options(Settings)}
BOUNDED = [option for option in OPTIONS.values() if option.bounds is not None]
every_option = pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.path)
every_bounded_option = pytest.mark.parametrize("option", BOUNDED, ids=lambda option: option.path)


def is_optional(option: Option) -> bool:
    return type(None) in get_args(option.type)


def base_type(option: Option) -> Any:
    """The type without its `| None`."""
    if is_optional(option):
        return next(each for each in get_args(option.type) if each is not type(None))
    return option.type


def values(option: Option) -> st.SearchStrategy[Any]:
    """Everything that this option may be, its neighbours aside."""
    kind, bounds = base_type(option), option.bounds or Bounds()
    low = None if bounds.low == -float("inf") else bounds.low
    high = min(bounds.high, bounds.ceiling) if bounds.high == float("inf") else bounds.high
    floats = st.floats(low, high, exclude_max=not bounds.high_allowed, allow_nan=False, allow_infinity=False)
    strategy: st.SearchStrategy[Any]
    if get_origin(kind) is Literal:
        strategy = st.sampled_from(get_args(kind))
    elif kind == tuple[str, ...]:  # a label with a comma in it cannot be a flag, and none has to be
        strategy = st.lists(st.text(st.characters(exclude_characters=",", exclude_categories=["Cs"]), min_size=1)).map(
            tuple
        )
    elif get_origin(kind) is tuple:
        strategy = st.tuples(floats, floats)
    elif kind is int:
        strategy = st.integers(None if low is None else int(low), min(10**9, int(high)))
    else:
        strategy = {bool: st.booleans(), float: floats, str: st.text()}[kind]
    return st.none() | strategy if is_optional(option) else strategy


def tables(flat: dict[str, Any]) -> dict[str, Any]:
    """{"model.width": 8} -> {"model": {"width": 8}}"""
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        table, _, leaf = path.rpartition(".")
        (nested.setdefault(table, {}) if table else nested)[leaf] = value
    return nested


def flatten(settings: Section, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        if isinstance(value, Section):
            flat |= flatten(value, f"{prefix}{field.name}.")
        else:
            flat[prefix + field.name] = value
    return flat


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    """Every option at once, with its neighbours brought into line where rules join them."""
    flat = {path: draw(values(option)) for path, option in OPTIONS.items()}
    heads = flat["model.heads"] = min(flat["model.heads"], 5_000)  # times 200 is the largest width
    flat["model.key_value_heads"] = draw(st.sampled_from([None, 1, heads]))
    if flat["model.width"] % heads:
        flat["model.key_width"] = flat["model.key_width"] or 2
        flat["model.value_width"] = flat["model.value_width"] or 3
    if flat["model.positions"] == "rotary":
        flat["model.key_width"] = draw(st.sampled_from([2, 64]))
    if flat["model.positions"].startswith("sinusoidal"):
        flat["model.width"] = 2 * heads * draw(st.integers(1, 100))
    if flat["model.pooler"] == "none":
        flat["model.next_sentence"] = False
    if flat["model.kind"] == "transformer":
        flat["model.attends"] = True
    else:
        flat["model.width"] = 2 * heads * draw(st.integers(1, 100))
        flat |= {"task": "translate", "training.recompute": False, "training.adapters": 0, "training.parallel": "ddp"}
    flat["data.directions"] = draw(st.sampled_from([(), ("en-de",), ("en-pt_BR", "pt_BR-en")]))
    if not flat["tokenizer.joint"]:
        flat["model.tie"] = draw(st.sampled_from(["output", "none"]))
        flat["data.directions"] = ()
    return build(Settings, tables(flat))


def as_text(value: Any) -> str:
    """`value` as a person types it behind a flag."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def refusal(overrides: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as error:
        load(overrides=overrides)
    return str(error.value)


# The declarations


@every_option
def test_every_option_has_a_line_of_help(option: Option) -> None:
    assert isinstance(option.help, str)
    assert 5 < len(option.help) < 160
    assert "\n" not in option.help
    assert not option.help.endswith(".") or option.help.endswith("...")


@every_option
def test_every_option_has_a_default_that_it_admits(option: Option) -> None:
    loaded = flatten(load(overrides={option.path: as_text(option.default)}))
    assert loaded[option.path] == option.default
    assert is_optional(option) or option.default is not None


@every_option
def test_every_number_has_bounds(option: Option) -> None:
    kind = base_type(option)
    if kind in (int, float) or (get_origin(kind) is tuple and kind != tuple[str, ...]):
        assert option.bounds is not None


@every_option
def test_an_option_that_may_be_none_is_so_by_default(option: Option) -> None:
    """TOML has no none: it is written by leaving the line out, which must mean the same."""
    if is_optional(option):
        assert option.default is None


def flatten_tables(nested: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{table}.{leaf}": tuple(value) if isinstance(value, list) else value
        for table, leaves in nested.items()
        for leaf, value in leaves.items()
    }


def test_options_come_in_the_order_of_their_declaration() -> None:
    assert list(OPTIONS)[:4] == ["task", "preset", "data.source", "data.target"]
    assert list(OPTIONS)[-1] == "embedding.normalize"
    assert OPTIONS["model.width"] == Option(
        "model.width", int, 512, "width of the residual stream (d_model)", Bounds(1)
    )


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load().model.width = 3  # type: ignore[misc]


# TOML


@given(settings=any_settings())
def test_any_settings_survive_toml(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "model.toml"
    path.write_text(dump(settings), encoding="utf-8")
    assert load_recorded(path) == settings


@given(settings=any_settings())
def test_any_settings_survive_as_flags(settings: Settings) -> None:
    flags = {path: as_text(value) for path, value in flatten(settings).items()}
    if settings.preset != "auto" and settings.preset not in PRESETS.get(settings.task, {}):
        flags["preset"] = "auto"  # a preset of another task
        settings = dataclasses.replace(settings, preset="auto")
    assert load(overrides=flags) == settings


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ('say "hi" \\ there', r'source = "say \"hi\" \\ there"'),
        ("a\nb\tc\x7f", r'source = "a\u000ab\u0009c\u007f"'),
        ("今天", 'source = "今天"'),
    ],
)
def test_text_in_toml_is_escaped(value: str, line: str) -> None:
    assert line in dump(DataSettings(source=value)).splitlines()


def test_toml_reads_like_the_documentation() -> None:
    text = dump(Settings(model=ModelSettings(width=64)))
    assert text.startswith('task = "translate"\npreset = "auto"\n\n[data]\nsource = "source"\n')
    assert "\n[model]\nwidth = 64\n" in text
    assert "\nbetas = [0.9, 0.98]\n" in text
    assert "key_width" not in text  # none is left out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[model\n", "not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 7)"),
        (b"\xff", "not valid TOML: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_a_file_that_is_not_toml(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as error:
        load(path)
    assert str(error.value) == f"{path}: {message}"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.toml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(SettingsError) as error:
            load_recorded(path)
        assert str(error.value) == f"{path}: cannot be read ({reason})"


# Who wins


def test_later_wins(tmp_path: Path) -> None:
    """Defaults, then the preset, then the file, then the overrides."""
    path = tmp_path / "regard.toml"
    path.write_text('preset = "tiny"\n[model]\nhidden = 300\ndropout = 0.15\n')
    settings = load(path, {"model.dropout": "0.35", "training.seed": 7})
    assert settings.model.tie == "all"  # nobody says otherwise
    assert settings.model.width == 128  # the preset
    assert settings.tokenizer.vocabulary == 6_000
    assert settings.model.hidden == 300  # the file
    assert settings.model.dropout == 0.35  # the flag
    assert settings.training.seed == 7
    assert settings.preset == "tiny"


@pytest.mark.parametrize(
    ("file", "overrides", "preset", "chosen", "width"),
    [
        ("", {}, None, "auto", 512),
        ("", {}, "tiny", "tiny", 128),
        ('preset = "auto"', {}, "tiny", "tiny", 128),
        ('preset = "small"', {}, "tiny", "small", 256),
        ('preset = "small"', {"preset": "big"}, "tiny", "big", 1024),
        ('preset = "small"', {"preset": "auto"}, "tiny", "tiny", 128),
        ("[model]\nwidth = 64", {}, "tiny", "tiny", 64),
        ("[model]\nwidth = 64", {"model.width": 32}, "tiny", "tiny", 32),
    ],
)
def test_who_names_the_preset(
    file: str, overrides: dict[str, Any], preset: str | None, chosen: str, width: int, tmp_path: Path
) -> None:
    path = tmp_path / "regard.toml"
    path.write_text(file)
    settings = load(path, overrides, preset)
    assert (settings.preset, settings.model.width) == (chosen, width)


@pytest.mark.parametrize(("task", "name"), [(task, name) for task, presets in PRESETS.items() for name in presets])
def test_presets_load_and_set_what_they_say(task: str, name: str) -> None:
    flat = flatten(load(overrides={"task": task}, preset=name))
    wanted = flatten_tables(PRESETS[task][name])
    assert {path: flat[path] for path in wanted} == wanted
    untouched = set(flat) - set(wanted) - {"preset"}
    defaults = flatten(load(overrides={"task": task}))
    assert {path: flat[path] for path in untouched} == {path: defaults[path] for path in untouched}


def test_the_presets_are_those_that_can_be_named() -> None:
    assert set(get_args(OPTIONS["preset"].type)) == {"auto", *NAMES}


def test_a_preset_of_another_task_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"there is no preset modern for translate: use tiny, small, base, big or auto"
    ):
        load(overrides={"preset": "modern"})


@pytest.mark.parametrize("task", TASKS)
def test_tasks_load_and_set_what_they_say(task: str) -> None:
    flat, wanted = flatten(load(overrides={"task": task})), flatten_tables(TASKS[task])
    assert {path: flat[path] for path in wanted} == wanted


def test_a_record_is_read_without_its_preset(tmp_path: Path) -> None:
    """Should the preset change with a later version, a model's folder still means what it meant."""
    path = tmp_path / "model.toml"
    path.write_text('preset = "tiny"\n')
    assert load_recorded(path) == Settings(preset="tiny")
    assert load_recorded(path).model.width == 512
    assert load(path).model.width == 128


@pytest.mark.parametrize(
    ("pairs", "device", "name", "reason"),
    [
        (100, "cpu", "tiny", "100 pairs are fewer than 50,000"),
        (50_000, "cpu", "small", "50,000 pairs are fewer than 500,000"),
        (500_000, "cuda", "base", "500,000 pairs are fewer than 5,000,000"),
        (5_000_000, "cuda", "big", "5,000,000 pairs"),
        (
            500_000,
            "cpu",
            "small",
            "500,000 pairs are fewer than 5,000,000, for which base is recommended, but on a CPU that would take weeks",
        ),
        (
            9_000_000,
            "cpu",
            "small",
            "9,000,000 pairs, for which big is recommended, but on a CPU that would take weeks",
        ),
    ],
)
def test_the_preset_follows_the_corpus(pairs: int, device: str, name: str, reason: str) -> None:
    assert choose_preset("translate", pairs, device) == (name, reason)


def test_merging_changes_neither_side() -> None:
    under, over = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "d": {"e": 4}}
    assert merge(under, over) == {"a": {"b": 9, "c": 2}, "d": {"e": 4}}
    assert (under, over) == ({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "d": {"e": 4}})


def test_loading_does_not_change_the_presets() -> None:
    load(overrides={"model.width": 64}, preset="tiny")
    assert PRESETS["translate"]["tiny"]["model"]["width"] == 128


# What is refused


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.widht": 8}, "unknown setting model.widht; did you mean model.width?"),
        ({"width": 8}, "unknown setting width; did you mean model.width?"),
        ({"training.dropout": 0.1}, "unknown setting training.dropout; did you mean model.dropout?"),
        ({"presett": "tiny"}, "unknown setting presett; did you mean preset?"),
        ({"xyzzy": 8}, "unknown setting xyzzy"),
        ({"model": 8}, "model must be a table of settings, not 8"),
        ({"model.width.x": 8}, "model.width must be a whole number, not {'x': 8}"),
    ],
)
def test_a_name_that_is_not_known(overrides: dict[str, Any], message: str) -> None:
    assert refusal(overrides) == message


def test_a_misspelt_table_is_recognised() -> None:
    """As a TOML table and as a flag."""
    for path, table in (("modle.width", "model"), ("trainin.steps", "training"), ("tokeniser.kind", "tokenizer")):
        wrong, leaf = path.split(".")
        assert re.fullmatch(
            rf"unknown setting {wrong}(\.{leaf})?; did you mean {table}(\.{leaf})?\?", refusal({path: "x"})
        )


@given(option=st.sampled_from(list(OPTIONS.values())), data=st.data())
def test_a_name_with_two_letters_swapped_is_recognised(option: Option, data: st.DataObject) -> None:
    table, _, leaf = option.path.rpartition(".")
    at = data.draw(st.integers(0, len(leaf) - 2))
    swapped = leaf[:at] + leaf[at + 1] + leaf[at] + leaf[at + 2 :]
    path = f"{table}.{swapped}" if table else swapped
    if path not in OPTIONS:
        assert refusal({path: 1}).startswith(f"unknown setting {path}; did you mean ")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.width": "wide"}, "model.width must be a whole number, not 'wide'"),
        ({"model.width": 8.0}, "model.width must be a whole number, not 8.0"),
        ({"model.width": "8.0"}, "model.width must be a whole number, not '8.0'"),
        ({"model.width": True}, "model.width must be a whole number, not True"),
        ({"model.width": "none"}, "model.width must be a whole number, not 'none'"),
        ({"model.key_width": []}, "model.key_width must be a whole number, not []"),
        ({"model.dropout": "much"}, "model.dropout must be a number, not 'much'"),
        ({"model.dropout": None}, "model.dropout must be a number, not None"),
        ({"model.bias": 1}, "model.bias must be true or false, not 1"),
        ({"model.bias": "yes"}, "model.bias must be true or false, not 'yes'"),
        ({"data.source": 3}, "data.source must be text, not 3"),
        ({"model.norm": "both"}, "model.norm must be one of post, pre, not 'both'"),
        ({"preset": "huge"}, "preset must be one of auto, tiny, small, base, big, modern, not 'huge'"),
        ({"training.betas": 5}, "training.betas must be values separated by commas, not 5"),
        ({"training.betas": "0.9;0.98"}, "training.betas must be a number, not '0.9;0.98'"),
        ({"training.betas": "0.9,1"}, "training.betas must be from 0 to below 1, not 1.0"),
        ({"model.dropout": "nan"}, "model.dropout must be a finite number, not nan"),
        ({"training.learning_rate": float("nan")}, "training.learning_rate must be a finite number, not nan"),
        ({"training.learning_rate": "-1"}, "training.learning_rate must be at least 0, not -1.0"),
        ({"tokenizer.vocabulary": 299}, "tokenizer.vocabulary must be at least 300, not 299"),
        ({"decoding.top_p": 1.5}, "decoding.top_p must be from 0 to 1, not 1.5"),
    ],
)
def test_a_value_of_the_wrong_kind(overrides: dict[str, Any], message: str) -> None:
    assert refusal(overrides) == message


@every_bounded_option
def test_bounds_are_kept(option: Option) -> None:
    bounds, whole = option.bounds, base_type(option) is int
    assert bounds is not None
    outside = [bounds.low - 1] if whole else [bounds.low - 1e-9]
    if bounds.high < float("inf"):
        outside.append(nextafter(bounds.high, float("inf")) if bounds.high_allowed else bounds.high)
    for limit in outside:
        number = int(limit) if whole else float(limit)
        given = (0.5, number) if get_origin(option.type) is tuple else number
        assert refusal({option.path: given}) == f"{option.path} must be {bounds}, not {number}"
    if whole and bounds.high == float("inf"):
        number = 2 * int(bounds.ceiling)
        assert refusal({option.path: number}) == f"{option.path} must be at most {bounds.ceiling:,}, not {number}"


@every_bounded_option
def test_bounds_themselves_are_admitted(option: Option) -> None:
    bounds = option.bounds
    assert bounds is not None
    assert not bounds.fault(bounds.low)
    assert bool(bounds.fault(min(bounds.high, bounds.ceiling))) == (not bounds.high_allowed)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=2),
    max_leaves=4,
)


@examples(100)
@given(path=st.sampled_from([*OPTIONS, "model", "nothing", ""]), value=anything)
def test_whatever_is_given_is_taken_or_refused_with_a_message(path: str, value: Any) -> None:
    """Nothing but a SettingsError comes out, which the command line prints on one line."""
    message = ""
    try:
        load(overrides={path: value})
    except SettingsError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize("value", [["tiny"], {"name": "tiny"}])
def test_a_preset_that_is_no_text_is_refused(value: Any) -> None:
    assert refusal({"preset": value}) == (f"preset must be one of auto, tiny, small, base, big, modern, not {value!r}")


@pytest.mark.parametrize("path", ["training.learning_rate", "model.dropout", "model.embedding_dropout"])
def test_a_number_too_large_for_a_float_is_refused(path: str) -> None:
    assert refusal({path: 10**400}).startswith(f"{path} must be ")


# Rules that join several settings


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"model.width": 20},
            "model.width 20 is not divisible by model.heads 8: "
            "change one of them or set model.key_width and model.value_width",
        ),
        (
            {"model.width": 20, "model.key_width": 4},
            "model.width 20 is not divisible by model.heads 8: "
            "change one of them or set model.key_width and model.value_width",
        ),
        (
            {"model.width": 20, "model.value_width": 4},
            "model.width 20 is not divisible by model.heads 8: "
            "change one of them or set model.key_width and model.value_width",
        ),
        ({"model.key_value_heads": 3}, "model.heads 8 is not divisible by model.key_value_heads 3: change one of them"),
        (
            {"model.key_value_heads": 16},
            "model.heads 8 is not divisible by model.key_value_heads 16: change one of them",
        ),
        (
            {"model.positions": "rotary", "model.key_width": 5},
            "model.positions = rotary needs an even key width per head, not 5: "
            "change model.width or model.heads, or set model.key_width",
        ),
        (
            {"model.positions": "rotary", "model.width": 24},
            "model.positions = rotary needs an even key width per head, not 3: "
            "change model.width or model.heads, or set model.key_width",
        ),
        (
            {"model.width": 27, "model.heads": 3},
            "model.positions = sinusoidal needs an even model.width, not 27",
        ),
        (
            {"model.width": 27, "model.heads": 3, "model.positions": "sinusoidal-halves"},
            "model.positions = sinusoidal-halves needs an even model.width, not 27",
        ),
        ({"training.betas": "0.9"}, "training.betas must be two numbers, not 1"),
        ({"training.betas": [0.9, 0.9, 0.9]}, "training.betas must be two numbers, not 3"),
        (
            {"tokenizer.joint": False},
            "model.tie = all shares the source and target tables, which needs tokenizer.joint = true: "
            "set model.tie to output or none",
        ),
        (
            {"tokenizer.joint": False, "model.tie": "inputs"},
            "model.tie = inputs shares the source and target tables, which needs tokenizer.joint = true: "
            "set model.tie to output or none",
        ),
    ],
)
def test_settings_that_contradict_each_other(overrides: dict[str, Any], message: str) -> None:
    assert refusal(overrides) == message


@pytest.mark.parametrize(
    "overrides",
    [
        {"model.width": 20, "model.key_width": 4, "model.value_width": 3},
        {"model.key_value_heads": 1},
        {"model.key_value_heads": 8},
        {"model.positions": "rotary", "model.key_width": 6},
        {"model.width": 27, "model.heads": 3, "model.positions": "learned"},
        {"tokenizer.joint": False, "model.tie": "output"},
        {"tokenizer.joint": False, "model.tie": "none"},
    ],
)
def test_settings_that_agree(overrides: dict[str, Any]) -> None:
    flat = flatten(load(overrides=overrides))
    assert {path: flat[path] for path in overrides} == overrides


@pytest.mark.parametrize(
    ("settings", "widths"),
    [
        (ModelSettings(), (64, 64, 8)),
        (ModelSettings(key_width=5), (5, 64, 8)),
        (ModelSettings(value_width=5), (64, 5, 8)),
        (ModelSettings(key_value_heads=2), (64, 64, 2)),
    ],
)
def test_widths_follow_from_width_and_heads_unless_told(settings: ModelSettings, widths: tuple[int, int, int]) -> None:
    assert (settings.head_width, settings.head_value_width, settings.query_groups) == widths


# Settings made in Python


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelSettings(width=0), "model.width must be at least 1, not 0"),
        (lambda: ModelSettings(dropout=1.0), "model.dropout must be from 0 to below 1, not 1.0"),
        (
            lambda: TrainingSettings(metric="wer"),  # type: ignore[arg-type]
            "training.metric must be one of chrf, bleu, loss, accuracy, f1, not 'wer'",
        ),
        (lambda: DecodingSettings(beam=2.5), "decoding.beam must be a whole number, not 2.5"),  # type: ignore[arg-type]
        (lambda: TokenizerSettings(joint=1), "tokenizer.joint must be true or false, not 1"),  # type: ignore[arg-type]
        (lambda: Settings(task="sing"), "task must be one of translate, write, fill, classify, embed, not 'sing'"),  # type: ignore[arg-type]
    ],
)
def test_settings_made_in_python_are_checked_too(make: Any, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        (ModelSettings, "width", "512"),
        (ModelSettings, "scale_embedding", "false"),
        (ModelSettings, "key_width", "none"),
        (ModelSettings, "dropout", "0.5"),
        (TrainingSettings, "betas", [0.9, 0.98]),
        (TrainingSettings, "betas", "0.9,0.98"),
    ],
)
def test_what_python_gives_as_another_type_is_refused_or_converted(section: Any, name: str, value: Any) -> None:
    """Never kept as it came: the text "false" is true, and a list is not equal to a tuple."""
    try:
        made = section(**{name: value})
    except SettingsError:
        return
    assert made == build(section, {name: value})
    assert type(getattr(made, name)) is type(getattr(build(section, {name: value}), name))


def test_folders_of_earlier_versions_record_settings_that_are_gone(tmp_path: Path) -> None:
    """A model that was trained with a removed setting still loads; only `resume` needs to know that it was used."""
    path, settings = tmp_path / "model.toml", load()
    text = dump(settings).replace("[training]\n", "[training]\nr_drop = 0.0\nrisk = 3.0\n")
    path.write_text(text, encoding="utf-8")
    assert load_recorded(path) == settings
    tables = read_toml(path)
    assert find_removed(tables) == ["training.r_drop", "training.risk"]
    assert find_removed(tables, in_use=True) == ["training.risk"]
    assert "unknown setting training.risk" in refusal({"training.risk": 1.0})
