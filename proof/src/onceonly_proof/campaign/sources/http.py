"""Our own servers of HTTP and TCP, which drop, stall, repeat and send half lines: one for each round."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import TYPE_CHECKING

from onceonly_proof.auditor import Input
from onceonly_proof.campaign.sources import journal
from onceonly_proof.campaign.sources.port import Flow, Source
from onceonly_proof.embedded.feeds import KEEPS_NOTHING, EmbeddedFeed, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onceonly_proof.auditor.log import EndsOf
    from onceonly_proof.campaign.sources.port import Place
    from onceonly_proof.campaign.workload import Workload

_ENDLESS = 10**9
_RESUMED = "header:Last-Event-ID"


class Numbers(Flow):
    """Numbered rows of a server, which may send as many of them as were drawn until now."""

    def __init__(self, kind: str, workload: Workload, place: Place, told: Mapping[str, str]) -> None:
        super().__init__(workload)
        draw = random.Random(f"{workload.seed}/feed")
        self._kind = kind
        self.server = EmbeddedFeed(
            kind, total=_ENDLESS, rate=0, seed=draw.getrandbits(16) | 1, directory=place.folder / "feed"
        )
        self.server.start()
        self.server.allow(0)
        tasks = min(workload.partitions, 2)
        self.is_ordered = tasks == 1
        self._keeps = kind not in KEEPS_NOTHING
        self._has_ids = "id" in told or kind == "events"
        address = {"url": f"http://127.0.0.1:{self.server.port}/"}
        if kind == "socket":
            address = {"host": "127.0.0.1", "port": str(self.server.port)}
        feed = "socket" if kind == "socket" else "http"
        self._reading = journal.Reading(
            draw, feed, {**address, **told}, place, rows=workload.per_epoch, tasks=tasks
        )
        self._allowed = 0

    def options(self) -> dict[str, str]:
        return self._reading.options

    def start(self) -> None:
        self._reading.start()
        super().start()

    def is_read(self, offsets: str) -> bool | None:
        if self._reading.has_unread(offsets):
            return False
        return None if self._keeps or self.server.sent() >= self.distinct else False

    def inputs(self) -> list[Input]:
        return self._reading.located([
            Input(number, f"{self._kind}/0", number, self._key(number), value_of(self._kind, number))
            for number in range(self.distinct)
        ])  # fmt: skip

    @property
    def ends_of(self) -> EndsOf:
        """Its offsets name segments, and these tell which rows they hold."""
        return self._reading.ends_of

    def close(self) -> None:
        self._reading.close()
        self.server.close()

    def _key(self, number: int) -> bytes | None:
        return b"%d" % number if self._has_ids else None

    def _produce(self, partition: int, key: str, value: bytes) -> int:  # noqa: ARG002  the server's rows are its own
        return 1

    def _flush(self) -> None:
        if not self._keeps:
            # What is lost is never shown: it may go on by what was sent.
            self.ahead_of = max(self.ahead_of, self.server.sent())
        if self.distinct > self._allowed:
            self._allowed = self.distinct
            self.server.allow(self._allowed)

    def _finish(self) -> int:
        self._flush()
        return self.distinct


class _Served(Source):
    """A source whose server is the round's own."""

    def __init__(self, folder: Path) -> None:
        del folder  # each round has its own
        self._now: Numbers | None = None

    def flow(self, name: str, workload: Workload, place: Place) -> Numbers:
        del name  # its server is its own
        kind, told = self._asked(workload)
        self._now = Numbers(kind, workload, place, told)
        return self._now

    @abstractmethod
    def _asked(self, workload: Workload) -> tuple[str, dict[str, str]]:
        """Return the kind of the server, and what the feed is told beside its address."""

    def kill(self) -> None:
        if self._now is not None:
            self._now.server.kill()

    def start(self) -> None:
        if self._now is not None:
            self._now.server.start()

    def close(self) -> None:
        if self._now is not None:
            self._now.close()


class Http(_Served):
    """Lines of JSON, or server-sent events."""

    key = "id"

    def _asked(self, workload: Workload) -> tuple[str, dict[str, str]]:
        if workload.seed % 2:
            return "http", {"id": "id", "resume": _RESUMED}
        return "events", {"resume": _RESUMED}


class Live(_Served):
    """Lines of JSON that are sent while somebody listens, and never again: at most once up to the journal."""

    key = "id"
    is_lossy = True

    def _asked(self, workload: Workload) -> tuple[str, dict[str, str]]:
        # With ids, or as they come.
        return "live", {"id": "id"} if workload.seed % 2 else {}


class Socket(_Served):
    """Lines over TCP: at most once up to the journal, exactly once from there."""

    is_lossy = True

    def _asked(self, workload: Workload) -> tuple[str, dict[str, str]]:  # noqa: ARG002  all are read alike
        return "socket", {}
