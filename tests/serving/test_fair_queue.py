from __future__ import annotations

from hypothesis import given, strategies as st

from regard.serving.scheduler import FairQueue


def always(_item: str) -> bool:
    return True


def drain(turns: FairQueue[str]) -> str:
    taken = ""
    while (item := turns.take(always)) is not None:
        taken += item
    return taken


def test_clients_take_turns() -> None:
    turns: FairQueue[str] = FairQueue()
    turns.add("a", 1, "aaaa")
    turns.add("b", 2, "b")
    turns.add("c", 3, "cc")
    assert drain(turns) == "abcacaa"
    assert len(turns) == 0
    assert turns.take(always) is None


def test_requests_of_one_client_take_turns() -> None:
    turns: FairQueue[str] = FairQueue()
    turns.add("a", 1, "1111")
    turns.add("a", 2, "22")
    turns.add("b", 3, "bbb")
    assert drain(turns) == "1b2b1b211"


def test_many_requests_of_one_client_do_not_crowd_out_another() -> None:
    turns: FairQueue[str] = FairQueue()
    for request in range(50):
        turns.add("a", request, "aa")
    turns.add("b", 99, "bb")
    assert drain(turns)[:4] == "abab"


def test_an_item_that_does_not_fit_keeps_its_turn() -> None:
    turns: FairQueue[str] = FairQueue()
    turns.add("a", 1, "aa")
    turns.add("b", 2, "bb")
    turns.add("c", 3, "cccc")
    assert [turns.take(lambda item: item == "c") for _ in range(3)] == ["c"] * 3
    assert turns.take(lambda item: item in "ab") == "a"
    assert turns.take(lambda item: item == "c") == "c"
    assert turns.take(lambda item: item in "ab") == "b"


def test_a_request_leaves() -> None:
    turns: FairQueue[str] = FairQueue()
    turns.add("a", 1, "11")
    turns.add("a", 2, "2")
    turns.add("b", 3, "")
    turns.drop("a", 1)
    turns.drop("a", 1)
    turns.drop("nobody", 5)
    assert len(turns) == 1
    assert drain(turns) == "2"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 9))))
def test_everything_comes_out_once_and_in_the_order_of_its_request(added: list[tuple[str, int, int]]) -> None:
    turns: FairQueue[tuple[str, int, int]] = FairQueue()
    expected: dict[tuple[str, int], list[int]] = {}
    for number, (client, request, count) in enumerate(added):
        numbers = [number * 10 + i for i in range(count)]
        turns.add(client, request, [(client, request, each) for each in numbers])
        expected.setdefault((client, request), []).extend(numbers)
    assert len(turns) == sum(map(len, expected.values()))
    found: dict[tuple[str, int], list[int]] = {}
    while (item := turns.take(lambda _: True)) is not None:
        found.setdefault(item[:2], []).append(item[2])
    assert found == {key: numbers for key, numbers in expected.items() if numbers}
