"""Which files a corpus is made of, and which languages they say they have."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import format_by_suffix as files
from regard.files.remote_files import RemotePath, as_path
from regard.settings import DataSettings
from regard.tokens.language_tags import CODE, TWO_LETTERS, normalize_code, primary, same_language

CATALOGUES = (".po", ".pot", ".mo")


def expand_paths(names: Iterable[Path | str], data: DataSettings | None = None) -> list[Path]:
    """Files as they are; for a folder, the files in it that have both languages; for a pattern, those that fit it.

    What is found so and says that it is in another language than `data` names is left out.
    """
    found: list[Path] = []
    for name in names:
        path = as_path(name)
        if path.is_dir():
            below = _below(path)
        elif not path.exists() and glob.has_magic(str(name)):
            below = _fitting(path)
        else:
            found.append(path)
            continue
        wanted = [each for each in below if data is None or _wanted(each, data)]
        if not wanted:
            many = f", in the languages that are wanted ({data.source} and {data.target})" if below and data else ""
            raise DataError(f"there is no file of a known format here{many}: {', '.join(files.PAIRED)}", path)
        found += [each for each in wanted if each not in found]
    return found


def _fitting(pattern: Path) -> list[Path]:
    """The files that fit a pattern, wherever they are."""
    if isinstance(pattern, RemotePath):
        return pattern.fitting()
    found = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 (it may begin anywhere)
    return sorted(each for each in map(Path, found) if each.is_file())


def _below(folder: Path) -> list[Path]:
    """The files in a folder and in those below it; not a catalogue's template, nor the compiled form beside it."""
    if isinstance(folder, RemotePath):
        inside = folder.below()
    else:
        inside = sorted(path for path in folder.rglob("*") if path.is_file())
    found = [path for path in inside if files.suffix(path) in files.PAIRED]
    return [
        path
        for path in found
        if files.suffix(path) != ".pot" and not (files.suffix(path) == ".mo" and path.with_suffix(".po") in found)
    ]


def _wanted(path: Path, data: DataSettings) -> bool:
    """Whether a file is in the languages that were named, as far as it tells; a memory may have any."""
    if data.directions or files.suffix(path) == ".tmx":
        return True
    pairs = zip(declared_languages(path), (data.source, data.target), ("source", "target"), strict=True)
    return all(not has or wanted == unnamed or same_language(has, wanted) for has, wanted, unnamed in pairs)


def is_reversed(path: Path, data: DataSettings) -> bool:
    """Whether a catalogue translates the other way than is wanted."""
    if files.suffix(path) not in CATALOGUES or data.source == DataSettings.source or data.target == DataSettings.target:
        return False
    source, target = declared_languages(path)
    return same_language(source, data.target) and same_language(target, data.source)


def languages(paths: Sequence[Path], source: str = "", target: str = "") -> tuple[str, str]:
    """The languages of some files, as far as they tell and it is not known; refuses files of several."""
    if source and target:
        return source, target
    each = [(path, declared_languages(path, source, target)) for path in paths if files.suffix(path) in files.PAIRED]
    if not each and len(paths) == 2 and all(files.suffix(path) in files.ALONE for path in paths):
        return source or language_in_name(paths[0]), target or language_in_name(paths[1])
    sources, targets = ({path: pair[side] for path, pair in each if pair[side]} for side in (0, 1))
    return source or _common(sources, "source"), target or _common(targets, "target")


def _common(codes: dict[Path, str], side: str) -> str:
    """The one language of some files."""
    for form in (normalize_code, primary):
        found = {form(code): path for path, code in codes.items()}
        if len(found) < 2:
            return next(iter(found), "")
    examples = ", ".join(f"{code} ({path})" for code, path in list(found.items())[:5])
    raise DataError(f"the files have several {side} languages: {examples}; say which one to learn with --{side}")


def declared_languages(path: Path, source: str = "", target: str = "") -> tuple[str, str]:
    """The languages that a file says it has, by its content or its name; nothing where it does not.

    Of a file with several, it is that beside the one that is named.
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
    """The language in the name of a file or of the folders around it: de.po, app.de.po, de/LC_MESSAGES/app.po.

    A part of the name counts if it is a code of two letters, or a longer one with a region.
    """
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    for name in (stem, re.split(r"[. ]", stem)[-1], stem.partition("-")[2], *path.parts[-2:-5:-1]):
        if CODE.fullmatch(name) and (name.lower() in TWO_LETTERS.split() or primary(name) != name.lower()):
            return normalize_code(name)
    return ""
