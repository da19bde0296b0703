"""Language tags are parsed and compared as file formats write them."""

from __future__ import annotations

from regard.files.language_tags import best_match, matches_code, same_language
from regard.tokens.language_directions import normalize_code, primary


def test_codes() -> None:
    assert [normalize_code(code) for code in ("EN-us", "zh_hant_TW", "de")] == ["en_US", "zh_Hant_TW", "de"]
    assert primary("pt-BR") == "pt"
    assert matches_code("EN_us", "en")
    assert not matches_code("en", "en-US")
    assert same_language("en", "en-US")
    assert not same_language("en-GB", "en-US")
    assert best_match(["de-AT", "de"], "DE") == "de"
    assert best_match(["de-AT", "de-CH"], "de") == "de-AT"
    assert best_match(["de"], "de-AT") == "de"
    assert best_match(["fr"], "de") is None
