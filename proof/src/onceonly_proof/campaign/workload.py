"""What goes in: seeded rows in bursts, written to a source while the job runs.

Every row is the JSON text ``{"id": n, "p": input partition, "n": position in it, "x": padding, "c": checksum}``,
the checksum over the text before it, so that a row is known byte for byte by itself.
"""

from __future__ import annotations

import json
import random
import threading
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

_TICK_S = 0.05
_EPOCHS_AHEAD = 6
# Of a slot a thousand are, and a source without a limit gives all that is there.
_PRINTED_PER_EPOCH = 150
# Of what is written, so much may come again.
_KEPT_EVERY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How a round's input looks. Drawn once a round.

    ``rows_per_s`` on average, in bursts of up to ``burst`` times that; ``bytes_max`` of padding a row; an epoch
    takes up to ``per_epoch`` rows. Of the rows, ``repeated`` came before, in the same partition. Where partitions split
    and merge, they do so every ``moves_every`` rows. Keys come by chance or, ``in_turn``, one after another.
    """

    seed: int
    partitions: int
    targets: int
    keys: int
    rows_per_s: int
    burst: int
    bytes_max: int
    per_epoch: int
    repeated: float = 0.0
    moves_every: int = 400
    in_turn: bool = False

    @classmethod
    def draw(cls, draw: random.Random) -> Workload:
        """Draw one."""
        rows_per_s = draw.choice((150, 300, 600))
        return cls(
            seed=draw.getrandbits(32),
            partitions=draw.randint(1, 4),
            targets=draw.randint(1, 3),
            keys=draw.choice((1, 7, 100, 5_000)),
            rows_per_s=rows_per_s,
            burst=draw.choice((1, 3, 8)),
            bytes_max=draw.choice((0, 50, 2_000)),
            # An epoch takes a tenth of a second or two: what is fed must fit in, or the job falls behind.
            per_epoch=draw.choice((1, 2)) * rows_per_s,
        )

    def once(self) -> Workload:
        """Return it with so many keys, in turn, that no epoch has one twice, and that later ones have each again."""
        return replace(self, keys=2 * _EPOCHS_AHEAD * self.per_epoch, in_turn=True)

    def printed(self) -> Workload:
        """Return it with rows so few and small that a sink prints all of an epoch."""
        return replace(self, bytes_max=0, per_epoch=_PRINTED_PER_EPOCH, rows_per_s=_PRINTED_PER_EPOCH)


def row(number: int, partition: int, position: int, padding: str) -> bytes:
    """Return the text of one input row."""
    text = f'{{"id":{number},"p":{partition},"n":{position},"x":"{padding}"'
    return f'{text},"c":"{zlib.crc32(text.encode()):08x}"}}'.encode()


def is_whole(text: bytes) -> bool:
    """Say whether a text is a row, byte for byte, with its own checksum."""
    try:
        found = json.loads(text)
        return row(found["id"], found["p"], found["n"], found["x"]) == text
    except (ValueError, KeyError, TypeError):
        return False


def number_of(value: bytes) -> int:
    """Return the number of a row of any source: a JSON object's ``id``, or all that it is."""
    found = json.loads(value)
    return int(found["id"] if isinstance(found, dict) else found)


class Feeder(ABC):
    """A thread that writes rows until it is told to stop, in bursts and lulls. Each source has its own.

    It waits out a server that is down.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._draw = random.Random(workload.seed)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._positions = [0] * workload.partitions
        self._former: list[tuple[int, str, bytes]] = []
        self._repeated = 0
        self.ahead_of = 0
        """How many rows the job has shown: the feeder keeps a bounded distance, so that a slow machine can drain."""
        self.given_up = 0
        """How many rows were written and will never be shown, as a server that died has lost them."""

    @property
    def distinct(self) -> int:
        """How many rows were written for the first time."""
        return sum(self._positions)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> int:
        """Stop, see that everything is written, and return the number of rows, with those that came before. Idempotent.

        Raises:
            UnavailableError: the server did not take all of it in time.
        """
        self._ended.set()
        self._thread.join()
        return self._finish()

    @abstractmethod
    def _produce(self, partition: int, key: str, value: bytes) -> int:
        """Write a row, or put it with others that ``_flush`` writes; return how many were taken, none or one."""

    @abstractmethod
    def _flush(self) -> None:
        """Write what waits; called after each burst."""

    @abstractmethod
    def _finish(self) -> int:
        """See that everything is written; give the number of rows."""

    def _run(self) -> None:
        workload = self._workload
        while not self._ended.wait(_TICK_S):
            # Bursts and lulls, the same on average.
            lucky = self._draw.randrange(workload.burst) == 0
            if self.distinct - self.given_up - self.ahead_of > _EPOCHS_AHEAD * workload.per_epoch:
                lucky = False
            for _ in range(int(workload.rows_per_s * _TICK_S * workload.burst) if lucky else 0):
                self._write()
            self._flush()

    def _write(self) -> None:
        draw, workload = self._draw, self._workload
        if self._former and draw.random() < workload.repeated:
            self._repeated += self._produce(*draw.choice(self._former))
            return
        partition = draw.randrange(workload.partitions)
        number = self.distinct
        padding = "x" * draw.randint(0, workload.bytes_max)
        value = row(number, partition, self._positions[partition], padding)
        key = str(number % workload.keys if workload.in_turn else draw.randrange(workload.keys))
        taken = self._produce(partition, key, value)
        self._positions[partition] += taken
        if taken and workload.repeated and number % _KEPT_EVERY == 0:
            self._former.append((partition, key, value))
