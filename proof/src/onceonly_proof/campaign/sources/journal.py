"""What rounds over a journal have in common: its options, the receiver beside the job, which dies, too, and its rows.

A journal deletes what was read. So that the auditor knows of each row the epoch that it belongs to, copies of all of
its segments are kept.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final

from onceonly.errors import UnavailableError
from onceonly_proof.embedded.process import GuardedProcess
from onceonly_proof.handover import put, until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from random import Random

    from onceonly_proof.auditor import Input
    from onceonly_proof.auditor.log import Ends
    from onceonly_proof.campaign.sources.port import Place
    from onceonly_proof.campaign.stores import CheckpointStore

JOURNAL: Final = "journal/0"
"""The input partition that a journal is; a row's position there is how many came before it."""
_HADOOP: Final = "spark.hadoop."
_POLL_S = 0.1
_TAKE_S = 0.05
"""A writer deletes segments a second after their epoch and the next are complete, at the soonest."""
_UP_S = 120.0


class Reading:
    """How a job reads over a journal: by a receiver inside of it or, as often as not, by one beside it."""

    def __init__(
        self,
        draw: Random,
        feed: str,
        given: Mapping[str, str],
        place: Place,
        *,
        rows: int,
        tasks: int,
    ) -> None:
        self.options = {
            **given,
            "journal": place.at("journal"),
            "linger": "20 ms",
            # Small, so that an epoch has some.
            "segmentBytes": "16k",
            "maxRowsPerTrigger": str(rows),
            "tasks": str(tasks),
        }
        self._kept = Kept(place.store, self.options["journal"], place.folder / "segments")
        self._receiver: Receiver | None = None
        if draw.random() < 0.5:  # noqa: PLR2004  as often as not
            self._receiver = Receiver(feed, self.options, place)
            self.options["receiver"] = "outside"

    def start(self) -> None:
        """Start the receiver beside the job, if there is one. Raises ``UnavailableError``."""
        self._kept.start()
        if self._receiver is not None:
            self._receiver.start()

    def has_unread(self, offsets: str) -> bool:
        """Say by what Spark notes of an epoch whether the journal has a segment that is not read with it."""
        try:
            return bool(json.loads(offsets.splitlines()[-1])["segment"] < self._kept.newest())
        except (IndexError, ValueError, KeyError, TypeError):
            return True  # not there, or being written

    def located(self, inputs: Sequence[Input]) -> list[Input]:
        """Return inputs with their places in the journal; as they were where they never came into it.

        Raises ``UnavailableError`` where a segment was deleted before it was kept.
        """
        return self._kept.located(inputs)

    def again(self) -> dict[bytes, list[int]]:
        """Return where rows are in the journal once more, behind their first place. Raises as ``located``."""
        return self._kept.again()

    def ends_of(self, barriers: Mapping[int, list[str]]) -> dict[int, Ends]:
        """Say where epochs ended, by their barriers, which name segments. Raises as ``located``."""
        return self._kept.ends_of(barriers)

    def close(self) -> None:
        """End it. Idempotent."""
        self._kept.close()
        if self._receiver is not None:
            self._receiver.close()


class Kept:
    """The segments that a journal ever had, as copies of its files in a folder."""

    def __init__(self, store: CheckpointStore, journal: str, folder: Path) -> None:
        self._store, self._segments, self._folder = store, f"{journal}/segments", folder
        self._one = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="segments", daemon=True)

    def start(self) -> None:
        """Begin to keep them."""
        self._thread.start()

    def take(self) -> None:
        """Keep what is there now. Any thread."""
        with self._one:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name in self._store.names(self._segments):
                if name.isdecimal() and not (self._folder / name).exists():
                    data = self._store.data(self._segments, name)
                    if data is not None:
                        put(self._folder / name, data)

    def newest(self) -> int:
        """Return the number of the newest segment, 0 where there is none yet."""
        self.take()
        return max((int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()), default=0)

    def located(self, inputs: Sequence[Input]) -> list[Input]:
        """Return inputs with their places in the journal, as ``Reading`` does."""
        places = self._places()
        return [
            replace(each, partition=JOURNAL, position=places[each.value][0]) if each.value in places else each
            for each in inputs
        ]

    def again(self) -> dict[bytes, list[int]]:
        """Return where rows came again, as ``Reading`` does."""
        return {value: rest for value, (_, *rest) in self._places().items() if rest}

    def ends_of(self, barriers: Mapping[int, list[str]]) -> dict[int, Ends]:
        """Say where epochs ended, as ``Reading`` does."""
        ends = [0, *accumulate(map(len, self._rows()))]
        found: dict[int, Ends] = {}
        for epoch, lines in barriers.items():
            segment = json.loads(lines[0])["segment"] if lines else len(ends)
            if segment < len(ends):
                found[epoch] = {JOURNAL: ends[segment]}
        return found

    def close(self) -> None:
        """End it; what was kept stays. Idempotent."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _places(self) -> dict[bytes, list[int]]:
        """Return where each value is, from the first place on."""
        places: dict[bytes, list[int]] = {}
        for position, value in enumerate(chain.from_iterable(self._rows())):
            places.setdefault(value, []).append(position)
        return places

    def _rows(self) -> list[list[bytes]]:
        """Return the values of each segment, from the first on."""
        import pyarrow as pa

        self.take()
        paths = sorted(path for path in self._folder.iterdir() if path.name.isdecimal())
        if [int(path.name) for path in paths] != list(range(1, len(paths) + 1)):
            raise UnavailableError(
                "a segment of the journal was deleted before the campaign had kept it, so that nobody knows which "
                "epoch its rows belong to",
                next_step="run the round again, on a machine that has less to do",
            )
        # A header, a line that says what it is, and a stream of Arrow's: see the reference of feeds.
        streams = [path.read_bytes().split(b"\n", 2)[2] for path in paths]
        return [pa.ipc.open_stream(each).read_all().column("value").to_pylist() for each in streams]

    def _run(self) -> None:
        while not self._ended.wait(_TAKE_S):
            self.take()


class Receiver:
    """``onceonly journal run``, in a process of its own, and started again whenever it has died."""

    def __init__(self, feed: str, given: Mapping[str, str], place: Place) -> None:
        conf = place.folder / "receiver.conf"
        hadoop = {name: value for name, value in place.store.conf.items() if name.startswith(_HADOOP)}
        conf.write_text("".join(f"{name} {value}\n" for name, value in hadoop.items()), encoding="utf-8")
        told = [f"{name}={value}" for name, value in place.env.items()]
        words = [word for name, value in given.items() for word in ("-o", f"{name}={value}")]
        self._command = [
            "env", *told, sys.executable, "-W", "ignore", "-m", "onceonly", "journal", "run",
            "--hadoop-conf", str(conf), feed, *words,
        ]  # fmt: skip
        self._log = place.folder / "receiver.log"
        self._has_begun = lambda: place.store.data(given["journal"], "journal") is not None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def start(self) -> None:
        """Start it, and wait until there is a journal. Raises ``UnavailableError``."""
        self._thread.start()
        if not until(self._has_begun, _UP_S):
            raise UnavailableError(
                "the receiver beside the job has made no journal",
                next_step="read receiver.log in the kept folder",
            )

    def close(self) -> None:
        """End it. Idempotent."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            process = GuardedProcess(self._command, self._log)
            while not self._ended.is_set() and not process.has_ended(_POLL_S):
                pass
            process.kill()
