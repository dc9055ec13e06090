"""Loops are compiled for attempts with many rows, where numba is there and works; nothing depends on it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from google_crc32c import _crc32c

from onceonly.errors import ConfigurationError
from onceonly.rows import checksum, compiled
from onceonly.rows.checksum import RowChecksum
from onceonly.sinks.kafka.records import partitioner, record_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = (checksum.LOOPS, checksum.LONG_LOOPS, partitioner.LOOPS, record_batches.LOOPS)
BROKEN = "numba is installed and does not work here, so rows are taken by numpy: "
IN_A_PROCESS = """
import logging, sys
import pyarrow as pa
from onceonly.rows import compiled
from onceonly.rows.checksum import LOOPS, RowChecksum
from onceonly.sinks.kafka.records import partitioner, record_batches
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
{before}
compiled.expect(compiled.ROWS_MIN - 1)
checksum = RowChecksum()
checksum.add(pa.record_batch({{"key": [b"a", None, b"c" * 100], "value": ["x" * 9, "", "z" * 200]}}))
print(checksum.value, "numba" in sys.modules and not {before!r})
compiled.expect(compiled.ROWS_MIN)
again = RowChecksum()
again.add(pa.record_batch({{"key": [b"a", None, b"c" * 100], "value": ["x" * 9, "", "z" * 200]}}))
print(again.value, *compiled.used())
"""
NO_CACHE = "import numba.core.caching as caching; caching.CacheImpl._locator_classes = []"
FULL_DISK = """
import numba.core.caching as caching
def full(*_): raise OSError(28, "No space left on device")
caching.IndexDataCacheFile.save = full
caching.IndexDataCacheFile.load = lambda *_: None
"""


@pytest.fixture(autouse=True)
def _as_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(compiled.MODE_ENV, raising=False)
    for name, value in (("is_on", False), ("is_told", False), ("used", set())):
        monkeypatch.setattr(compiled._State, name, value)
    compiled._load.cache_clear()
    yield
    compiled._load.cache_clear()


def by_numpy() -> str:
    found = RowChecksum()
    found.add(pa.record_batch({"key": [b"a", None, b"c" * 100], "value": ["x" * 9, "", "z" * 200]}))
    return found.value


def ask_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have loops imported again, with what numba is now."""
    for module in ALL:
        monkeypatch.delitem(sys.modules, module, raising=False)
    compiled.expect(compiled.ROWS_MIN)


def in_a_process(before: str = "", **environment: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS.format(before=before)],
        env=os.environ | environment,
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return run.stdout.splitlines()


def test_few_rows_do_not_import_numba_and_many_do() -> None:
    assert in_a_process() == [f"{by_numpy()} False", f"{by_numpy()} checksum_loops xxh3_loops"]


def test_once_compiled_they_serve_attempts_with_few_rows_too() -> None:
    compiled.expect(compiled.ROWS_MIN - 1)
    assert [compiled.loops(module) for module in ALL] == [None] * len(ALL)
    compiled.expect(compiled.ROWS_MIN)
    compiled.expect(0)  # the next attempt, in the same process
    assert None not in [compiled.loops(module) for module in ALL]
    assert compiled.used() == ["checksum_loops", "partition_loops", "record_loops", "xxh3_loops"]


@pytest.mark.parametrize(
    ("mode", "rows", "is_used"), [("always", 0, True), ("never", 10**9, False), ("auto", 0, False)]
)
def test_the_environment_says_when(
    mode: str,
    rows: int,
    is_used: bool,  # noqa: FBT001  a table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(compiled.MODE_ENV, mode)
    compiled.expect(rows)
    assert (compiled.loops(checksum.LOOPS) is not None) is is_used


def test_an_unknown_mode_is_refused_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.MODE_ENV, "yes")
    with pytest.raises(ConfigurationError, match=r"ONCEONLY_COMPILED is 'yes'.*auto, always, never"):
        compiled.expect(0)


def test_without_numba_rows_are_taken_by_numpy_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = by_numpy()
    monkeypatch.setitem(sys.modules, "numba", None)
    ask_anew(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert by_numpy() == expected
        assert [compiled.loops(module) for module in ALL] == [None] * len(ALL)
    assert compiled.used() == []
    assert caplog.records == []


def test_an_xxhash_that_keeps_its_function_in_c_to_itself_is_called_for_each_value_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = by_numpy()
    monkeypatch.setattr("xxhash._xxhash.__file__", _crc32c.__file__)  # has none of that name
    ask_anew(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert by_numpy() == expected
    assert compiled.used() == ["checksum_loops"]
    assert caplog.records == []


def test_a_numba_that_does_not_work_is_told_of_once_and_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = by_numpy()
    monkeypatch.setattr("numba.njit", lambda *_, **__: 1 / 0)
    ask_anew(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert by_numpy() == expected
        assert [compiled.loops(module) for module in ALL] == [None] * len(ALL)
    assert compiled.used() == []
    assert [record.getMessage() for record in caplog.records] == [
        BROKEN + "ZeroDivisionError: division by zero."
    ]


def test_a_numba_that_has_moved_what_is_used_of_it_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numba.extending", None)
    ask_anew(monkeypatch)
    assert compiled.loops(record_batches.LOOPS) is None
    assert BROKEN + "ModuleNotFoundError" in caplog.text


@pytest.mark.parametrize("module", ALL)
def test_a_loop_that_does_not_do_what_it_must_is_not_used(
    module: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another processor, or of an older version: what numba's cache gives is not taken on trust."""
    monkeypatch.setattr("numba.njit", lambda *_, **__: lambda _loop: lambda *_arguments: 0)
    ask_anew(monkeypatch)
    assert compiled.loops(module) is None
    assert BROKEN + "ImportError: a loop gives " in caplog.text


@pytest.mark.parametrize("before", [NO_CACHE, FULL_DISK], ids=["nowhere to keep it", "a full disk"])
def test_loops_that_cannot_be_kept_are_compiled_by_each_process(before: str) -> None:
    assert in_a_process(before) == [f"{by_numpy()} False", f"{by_numpy()} checksum_loops xxh3_loops"]


def test_where_numba_is_told_not_to_compile_rows_are_taken_by_numpy() -> None:
    first, warning, again = in_a_process(NUMBA_DISABLE_JIT="1")
    assert (first, again) == (f"{by_numpy()} False", by_numpy())
    assert "NUMBA_DISABLE_JIT is set" in warning
