"""Loops are compiled for attempts with many rows, where numba is there and works; nothing depends on it."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from onceonly import compiled
from onceonly.errors import ConfigurationError
from onceonly.runtime.checksum import RowChecksum

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOPS = "onceonly.runtime.checksum_loops"
ROWS = pa.record_batch({"key": [b"a", None, b"c" * 100], "value": ["x" * 9, "", "z" * 200]})
IN_A_PROCESS = """
import logging, sys
import pyarrow as pa
from onceonly import compiled
from onceonly.runtime.checksum import RowChecksum
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
compiled.expect(10**9)
checksum = RowChecksum()
checksum.add(pa.record_batch({"key": [b"a", None, b"c" * 100], "value": ["x" * 9, "", "z" * 200]}))
print(checksum.value, compiled.is_used())
"""


@pytest.fixture(autouse=True)
def _as_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(compiled.MODE_ENV, raising=False)
    monkeypatch.setattr(compiled._State, "is_on", False)
    monkeypatch.setattr(compiled._State, "is_used", False)
    compiled._load.cache_clear()
    yield
    compiled._load.cache_clear()


def by_numpy() -> str:
    checksum = RowChecksum()
    checksum.add(ROWS)
    return checksum.value


def test_few_rows_import_nothing_and_many_do() -> None:
    compiled.expect(compiled.ROWS_MIN - 1)
    assert compiled.loops(LOOPS) is None
    assert not compiled.is_used()

    compiled.expect(compiled.ROWS_MIN)
    assert compiled.loops(LOOPS) is not None
    assert compiled.is_used()

    compiled.expect(0)  # the next attempt, in the same process
    assert compiled.loops(LOOPS) is not None


@pytest.mark.parametrize(
    ("mode", "rows", "used"), [("always", 0, True), ("never", 10**9, False), ("auto", 0, False)]
)
def test_the_environment_says_when(mode: str, rows: int, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001  a table
    monkeypatch.setenv(compiled.MODE_ENV, mode)
    compiled.expect(rows)
    assert (compiled.loops(LOOPS) is not None) is used


def test_an_unknown_mode_is_refused_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.MODE_ENV, "yes")
    with pytest.raises(ConfigurationError, match=r"ONCEONLY_COMPILED is 'yes'.*auto, always, never"):
        compiled.expect(0)


def test_without_numba_rows_are_taken_by_numpy_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = by_numpy()
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, LOOPS, raising=False)
    compiled.expect(compiled.ROWS_MIN)
    with caplog.at_level(logging.WARNING):
        assert by_numpy() == expected
    assert not compiled.is_used()
    assert caplog.records == []


def test_a_numba_that_does_not_work_is_told_of_once_and_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = by_numpy()
    monkeypatch.setattr("numba.njit", lambda *_, **__: 1 / 0)
    monkeypatch.delitem(sys.modules, LOOPS, raising=False)
    compiled.expect(compiled.ROWS_MIN)
    with caplog.at_level(logging.WARNING):
        assert [by_numpy(), by_numpy()] == [expected] * 2
    assert not compiled.is_used()
    assert [record.getMessage() for record in caplog.records] == [
        "numba is installed and does not work here, so rows are taken by numpy: ZeroDivisionError: division by zero."
    ]


@pytest.mark.parametrize(
    ("variable", "used"),
    [
        ("NUMBA_DISABLE_JIT", False),  # its functions would be Python's, row by row
        ("NUMBA_CACHE_DIR", True),  # a cache that cannot be written
    ],
)
def test_what_the_environment_of_numba_says_costs_no_row(variable: str, used: bool, tmp_path: Path) -> None:  # noqa: FBT001  a table
    (tmp_path / "file").touch()
    value = str(tmp_path / "file" / "below") if used else "1"
    run = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS],
        env={"PATH": "", variable: value},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    *warnings, found = run.stdout.splitlines()
    assert found == f"{by_numpy()} {used}"
    assert ["NUMBA_DISABLE_JIT is set" in line for line in warnings] == [True] * (not used)


def test_words_are_read_at_every_offset() -> None:
    data = np.arange(11, dtype=np.uint8)
    assert [word.to_bytes(8, "little") for word in compiled.words(data).tolist()] == [
        bytes(range(first, first + 8)) for first in range(4)
    ]
    assert len(compiled.words(data, 4)) == 8
    assert len(compiled.words(data[:7])) == 0
