"""What stands in a Redis server after any rows in any order is what a dictionary in Python holds."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import redis as client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onceonly.families.keyed import KeyedRows
from onceonly.sinks.redis import RedisSink, target
from onceonly_proof.embedded.redis import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Put = tuple[int, list[tuple[str, bool, dict[str, Any]]], int, int]

pytestmark = pytest.mark.integration
# The last two differ by less than a float of this size can tell.
VERSIONS = (7, 10**15, 2**62, 2**62 + 1)
WORDS = st.text(st.characters(codec="utf-8"), max_size=12)
COLUMNS: Mapping[str, tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], bytes]]] = {
    "text": (pa.string(), WORDS, str.encode),
    "large": (pa.large_string(), WORDS, str.encode),
    "bytes": (pa.binary(), st.binary(max_size=12), bytes),
    "big bytes": (pa.large_binary(), st.binary(max_size=12), bytes),
    "view": (pa.string_view(), WORDS, str.encode),
    "word": (pa.dictionary(pa.int8(), pa.string()), WORDS, str.encode),
    "number": (pa.int64(), st.integers(-(2**63), 2**63 - 1), lambda value: str(value).encode()),
    "flag": (pa.bool_(), st.booleans(), lambda value: b"true" if value else b"false"),
    "day": (pa.date32(), st.dates(), lambda value: value.isoformat().encode()),
    "at": (
        pa.timestamp("us"), st.datetimes(),
        lambda value: value.isoformat(timespec="microseconds").encode(),
    ),
    "price": (
        pa.decimal128(12, 2), st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents).scaleb(-2)),
        lambda value: format(value, ".2f").encode(),
    ),
    "real": (pa.float64(), st.floats(allow_nan=False), lambda value: repr(value).encode()),
    "tags": (
        pa.list_(pa.string()), st.lists(st.none() | WORDS, max_size=3),
        lambda value: json.dumps(value, ensure_ascii=False).encode(),
    ),
}  # fmt: skip
ROWS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.booleans(),
        st.fixed_dictionaries({name: st.none() | values for name, (_, values, _) in COLUMNS.items()}),
    ),
    max_size=9,
)
# A version, rows, and how many of these a slice leaves out at either end.
PUTS = st.lists(
    st.tuples(st.sampled_from(VERSIONS), ROWS, st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4
)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(settings={"appendonly": "no"}) as server:
        yield server


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)  # fmt: skip
@example(
    puts=[(2**62 + 1, [("a", False, {})], 0, 0), (2**62, [("b", False, {}), ("a", True, {})], 0, 0)],
    rows_max=50, bytes_max=60,
)  # fmt: skip
@given(puts=PUTS, rows_max=st.sampled_from((1, 2, 3, 50)), bytes_max=st.sampled_from((8, 60, 1 << 20)))
def test_what_stands_is_what_a_dictionary_would_hold(
    server: EmbeddedRedis,
    monkeypatch: pytest.MonkeyPatch,
    puts: Sequence[Put],
    rows_max: int,
    bytes_max: int,
) -> None:
    monkeypatch.setattr(target, "ROWS_MAX", rows_max)
    monkeypatch.setattr(target, "BYTES_MAX", bytes_max)
    prefix = f"{uuid.uuid4().hex}:"
    sink = RedisSink({"url": server.url, "key": "key", "prefix": prefix})
    model: dict[str, tuple[int, dict[bytes, bytes]]] = {}
    with closing(sink):
        for version, rows, head, tail in puts:
            kept = rows[head : len(rows) - tail]
            if not kept:
                continue
            newer = {prefix + key: held for key, (held, _) in model.items() if held > version}
            _, found = sink.put(sliced(rows, head, len(kept)), version)
            mine = {prefix + key for key, _, _ in kept} & newer.keys()
            assert (found is None) == (not mine)
            assert found is None or (found.key in mine and found.version == newer[found.key])
            for key, deleted, row in kept:
                if prefix + key not in newer:
                    model[key] = (version, {b"onceonly.deleted": b"1"} if deleted else texts(row))
    raw: Any = client.Redis.from_url(server.url)
    with closing(raw):
        stands = {name.decode().removeprefix(prefix): raw.hgetall(name) for name in raw.keys(f"{prefix}*")}
        forgotten = {key for key in stands if raw.pttl(prefix + key) > 0}
    assert stands == {
        key: {b"onceonly.version": b"%019d" % version, **row} for key, (version, row) in model.items()
    }
    assert forgotten == {key for key, row in stands.items() if b"onceonly.deleted" in row}


def sliced(rows: Sequence[tuple[str, bool, dict[str, Any]]], first: int, count: int) -> KeyedRows:
    """Return some of the rows, whose columns begin in the middle of what Arrow holds."""
    held = pa.RecordBatch.from_arrays(
        [pa.array([row.get(name) for _, _, row in rows], kind) for name, (kind, _, _) in COLUMNS.items()],
        names=list(COLUMNS),
    )
    some = rows[first : first + count]
    return KeyedRows(
        keys=[key for key, _, _ in some],
        deleted=[deleted for _, deleted, _ in some],
        rows=held.slice(first, count),
    )


def texts(row: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the fields of a row, as the page on them says."""
    return {name.encode(): COLUMNS[name][2](value) for name, value in row.items() if value is not None}
