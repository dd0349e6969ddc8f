"""The table of what was decided: asked once, bounded, and no key too odd."""

from __future__ import annotations

from webhook.policy.memory import SIZE, Memory


def test_an_equal_key_is_decided_once() -> None:
    memory, asked = Memory(), []

    def decide() -> str:
        asked.append("again")
        return "decided"

    assert [memory.recall(("a", 1), decide) for _ in range(3)] == ["decided"] * 3
    assert asked == ["again"]
    assert memory.recall(("a", 2), lambda: "other") == "other"


def test_the_oldest_goes_first() -> None:
    memory = Memory()
    for i in range(SIZE + 1):
        memory.recall(i, lambda: "first")
    assert memory.recall(SIZE, lambda: "second") == "first"
    assert memory.recall(1, lambda: "second") == "first"
    assert memory.recall(0, lambda: "second") == "second"


def test_a_key_without_a_hash_is_decided_each_time() -> None:
    memory = Memory()
    assert memory.recall(("key", ["a"]), lambda: 1) == 1
    assert memory.recall(("key", ["a"]), lambda: 2) == 2
