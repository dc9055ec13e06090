"""The auditor's reader of a stream: every record is a row, and dropping repeats is tried beside it."""

from __future__ import annotations

import json
from typing import Any

from onceonly_proof.auditor import EnvelopedReader


def record(number: int, value: str, **more: Any) -> tuple[str, int, bytes]:  # noqa: ANN401  of an envelope
    told = {"query": "q", "sink": "kinesis", "epoch": 0, "try": 0, "slot": 0, "number": number, **more}
    return "shard", number, json.dumps({**told, "row": {"key": "k", "value": value}}).encode()


def wrong(*records: tuple[str, int, bytes]) -> list[str]:
    return [orphan.what for orphan in EnvelopedReader("kinesis", lambda: records).orphans()]


def test_repeats_are_rows_and_drop_out_by_their_envelope() -> None:
    records = [record(0, "a"), record(1, "b"), record(0, "a"), record(0, "c", epoch=1)]
    reader = EnvelopedReader("kinesis", lambda: records)
    assert [(seen.key, seen.value) for seen in reader.rows()] == [
        (b"k", b"a"), (b"k", b"b"), (b"k", b"a"), (b"k", b"c"),
    ]  # fmt: skip
    assert reader.orphans() == []


def test_of_an_epoch_the_last_try_counts_however_its_rows_are_dealt_to_slots() -> None:
    first = [record(0, "a"), record(0, "b", slot=1)]
    dealt_anew = [record(0, "b", **{"try": 2}), record(0, "a", **{"try": 2}, slot=1)]
    assert wrong(*first, *dealt_anew) == []
    assert wrong(*dealt_anew, *first) == []  # a late writer of an earlier try
    [what] = wrong(*first, *dealt_anew[:1])
    assert '"a"' in what


def test_a_repeat_with_another_number_is_named() -> None:
    [what] = wrong(record(0, "a"), record(1, "a"))
    assert "too, after repeats were dropped" in what


def test_a_row_that_another_rows_envelope_drops_is_named() -> None:
    [what] = wrong(record(0, "a"), record(0, "b"))
    assert "dropped as a repeat of another one" in what
    assert '"b"' in what
