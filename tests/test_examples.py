"""Properties are tried alike by everybody in `make test`, and differently each time in `make slow`."""

from __future__ import annotations

from hypothesis import settings

from tests.examples import EXAMPLES, examples


def test_one_profile_repeats_its_examples_and_the_other_draws_ten_times_as_many() -> None:
    usual, random = settings.get_profile("regard"), settings.get_profile("random")
    assert (usual.max_examples, usual.derandomize) == (EXAMPLES, True)
    assert (random.max_examples, random.derandomize, random.print_blob) == (10 * EXAMPLES, False, True)
    assert random.deadline is None


def test_a_number_of_examples_of_its_own_grows_with_the_profile() -> None:
    current, found = settings.get_current_profile_name(), {}
    try:
        for profile in ("regard", "random"):
            settings.load_profile(profile)
            found[profile] = (examples(8).max_examples, examples(300).max_examples, examples(8).derandomize)
    finally:
        settings.load_profile(current)
    assert found == {"regard": (8, 300, True), "random": (80, 3000, False)}
