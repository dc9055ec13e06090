"""Reading what was appended to a stream in envelopes, as a reader that drops what it has had."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from onceonly_proof.auditor.world import Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Record: TypeAlias = tuple[str, int, bytes]

_EPOCH = ("query", "sink", "epoch")
_NAMES = (*_EPOCH, "try", "slot", "number")


class EnvelopedReader:
    """Reads the records of a stream, each with a row of the columns ``key`` and ``value``; fulfils ``Reader``.

    ``read`` gives for each record its place, its order there, and its data. All of them are rows, repeats too: at least
    once allows them. That a reader who drops them by their envelope, of each epoch all but the last try, has each row
    once is what ``orphans`` sees to: it names the rows that are left twice, and those that are not left.
    """

    def __init__(self, sink: str, read: Callable[[], Iterable[Record]]) -> None:
        self._sink = sink
        self._read = read

    def rows(self) -> Iterator[Seen]:
        """Yield every record."""
        for place, order, data in self._read():
            row: dict[str, Any] = json.loads(data)["row"]
            yield Seen(self._sink, _bytes(row.get("key")), _bytes(row.get("value")), place, order)

    def orphans(self) -> list[Orphan]:
        """Return what is wrong after repeats were dropped by their envelope."""
        kept: dict[tuple[Any, ...], str] = {}
        every: set[str] = set()
        records = [json.loads(data) for _, _, data in self._read()]
        last: dict[tuple[Any, ...], int] = {}
        for told in records:
            epoch = _named(told, _EPOCH)
            last[epoch] = max(told["try"], last.get(epoch, 0))
        for told in records:
            text = json.dumps(told["row"], sort_keys=True)
            every.add(text)
            if told["try"] == last[_named(told, _EPOCH)]:
                kept.setdefault(_named(told, _NAMES), text)
        left: dict[str, tuple[Any, ...]] = {}
        wrong = []
        for name, text in kept.items():
            if text in left:
                wrong.append(f"a row of {name} that {left[text]} has, too, after repeats were dropped")
            left[text] = name
        wrong += [
            f"a row that was dropped as a repeat of another one: {text}" for text in every - left.keys()
        ]
        return [Orphan(self._sink, what) for what in wrong]

    def close(self) -> None:
        """Nothing is kept open between calls."""


def _named(told: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(told[name] for name in names)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()
