"""Finds the files of a corpus, and the languages declared in them or in their names."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import format_by_suffix as files
from regard.files.language_tags import CODE, TWO_LETTERS, same_language
from regard.files.remote_files import RemotePath, as_path
from regard.settings import DataSettings
from regard.tokens.language_directions import normalize_code, primary

CATALOGUES = (".po", ".pot", ".mo")


def expand_paths(names: Iterable[Path | str], data: DataSettings | None = None) -> list[Path]:
    """Replaces folders by the files in them that contain both languages, and patterns by the matching files.

    Files from folders and patterns are skipped if they declare other languages than `data`.
    """
    paths: list[Path] = []
    for name in names:
        path = as_path(name)
        if path.is_dir():
            available = _files_below(path)
        elif not path.exists() and glob.has_magic(str(name)):
            available = _matching_files(path)
        else:
            paths.append(path)
            continue
        wanted = [each for each in available if data is None or _is_wanted(each, data)]
        if not wanted:
            languages = f" from {data.source} to {data.target}" if available and data else ""
            raise DataError(f"there is no file{languages} with a known format: {', '.join(files.PAIRED)}", path)
        paths += [each for each in wanted if each not in paths]
    return paths


def _matching_files(pattern: Path) -> list[Path]:
    if isinstance(pattern, RemotePath):
        return pattern.matching_files()
    matches = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 (a pattern may be absolute)
    return sorted(each for each in map(Path, matches) if each.is_file())


def _files_below(folder: Path) -> list[Path]:
    """Returns the files in a folder and its subfolders, without .pot files, and .mo files that have a .po file."""
    if isinstance(folder, RemotePath):
        inside = folder.files_below()
    else:
        inside = sorted(path for path in folder.rglob("*") if path.is_file())
    paths = {path: files.suffix(path) for path in inside if files.suffix(path) in files.PAIRED}
    return [
        path for path, end in paths.items() if end != ".pot" and not (end == ".mo" and path.with_suffix(".po") in paths)
    ]


def _is_wanted(path: Path, data: DataSettings) -> bool:
    """Returns whether a file is in the languages of the settings, as far as both are known."""
    if data.directions or files.suffix(path) == ".tmx":  # a TMX file may have any number of languages
        return True
    pairs = zip(declared_languages(path), (data.source, data.target), ("source", "target"), strict=True)
    return all(not code or wanted == default or same_language(code, wanted) for code, wanted, default in pairs)


def is_reversed(path: Path, data: DataSettings) -> bool:
    """Returns whether a catalogue translates in the opposite direction of the settings."""
    if files.suffix(path) not in CATALOGUES or data.source == DataSettings.source or data.target == DataSettings.target:
        return False
    source, target = declared_languages(path)
    return same_language(source, data.target) and same_language(target, data.source)


def languages(paths: Sequence[Path], source: str = "", target: str = "") -> tuple[str, str]:
    """Returns `source` and `target` or, if empty, the languages that all files declare."""
    if source and target:
        return source, target
    declared = {path: declared_languages(path, source, target) for path in paths if files.suffix(path) in files.PAIRED}
    if not declared and len(paths) == 2 and all(files.suffix(path) in files.ALONE for path in paths):
        return source or language_in_name(paths[0]), target or language_in_name(paths[1])
    sources, targets = ({path: pair[side] for path, pair in declared.items() if pair[side]} for side in (0, 1))
    return source or _common_language(sources, "source"), target or _common_language(targets, "target")


def _common_language(codes: Mapping[Path, str], side: str) -> str:
    for form in (normalize_code, primary):
        examples = {form(code): path for path, code in codes.items()}
        if len(examples) < 2:
            return next(iter(examples), "")
    listed = ", ".join(f"{code} ({path})" for code, path in list(examples.items())[:5])
    raise DataError(f"the files have several {side} languages: {listed}; specify one with --{side}")


def declared_languages(path: Path, source: str = "", target: str = "") -> tuple[str, str]:
    """Returns the languages declared in the content or name of a file, empty if unknown.

    If a file has several languages, `source` and `target` choose among them.
    """
    module = files.format_module(path)
    if module is not None and hasattr(module, "languages"):
        source, target = module.languages(path, source, target)
        return normalize_code(source), normalize_code(target)
    if files.suffix(path) not in CATALOGUES:
        return "", ""
    document = None if files.suffix(path) == ".mo" else files.open_document(path)
    source, target = (document.source_language, document.target_language) if document else ("", "")
    return normalize_code(source or "en"), normalize_code(target or language_in_name(path))


def language_in_name(path: Path) -> str:
    """Returns the language in the name of a file or its folders, as in de.po, app.de.po or de/LC_MESSAGES/app.po.

    A part of the name counts as a language if it is a two-letter code, or a longer code with a region.
    """
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    for name in (stem, re.split(r"[. ]", stem)[-1], stem.partition("-")[2], *path.parts[-2:-5:-1]):
        if CODE.fullmatch(name) and (name.lower() in TWO_LETTERS or primary(name) != name.lower()):
            return normalize_code(name)
    return ""
