"""What Kafka's error codes mean is said in one place; nobody has a table of his own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kafka.errors import kafka_errors

import onceonly.sinks.kafka
from onceonly.errors import ConfigurationError
from onceonly.sinks.kafka.wire.answers import Meaning, meaning, refuse_forbidden

ROOM = Path(onceonly.sinks.kafka.__file__).parent


@pytest.mark.parametrize(
    ("codes", "means"),
    [
        ([0], Meaning.DONE),
        ([46], Meaning.KNOWN),
        ([14, 15, 16], Meaning.ELSEWHERE),
        ([3, 5, 6, 7, 8, 13, 19, 20, 41, 51, 56, 88, 89], Meaning.LATER),
        ([29, 30, 31, 53], Meaning.FORBIDDEN),
        ([47, 48, 90, -144], Meaning.ENDED),
        ([10, 18], Meaning.TOO_LARGE),
        ([87], Meaning.REFUSED),
        ([45, 49, 59, 105, -1, -196, 30_000], Meaning.OTHER),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_each_code_means_one_thing(codes: list[int], means: Meaning) -> None:
    assert {meaning(code) for code in codes} == {means}


def test_what_kafkas_own_clients_ask_again_is_asked_again() -> None:
    again = {code for code, kind in kafka_errors.items() if kind.retriable and code is not None}
    assert {meaning(code) for code in again} == {Meaning.LATER, Meaning.ELSEWHERE}


def test_each_permission_that_is_missing_can_be_named() -> None:
    forbidden = [code for code in kafka_errors if code is not None and meaning(code) is Meaning.FORBIDDEN]
    for code in forbidden:
        with pytest.raises(ConfigurationError, match=f"error {code}"):
            refuse_forbidden(code, "it")
    assert len(forbidden) == 4


def test_nobody_else_compares_codes_with_numbers() -> None:
    by_number = re.compile(r"code\w*(\(\))? (==|!=|in|not in) \{?-?[1-9]")
    found = [
        f"{path.relative_to(ROOM)}: {line.strip()}"
        for path in sorted(ROOM.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if by_number.search(line)
    ]
    assert found == []
