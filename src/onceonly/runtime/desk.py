"""Planning an epoch: from Spark's checkpoint and the user's options to a resolved plan.

Used by the planner process (format road) and by the driver's Python (foreachBatch road). A ``Desk`` is one
use of a sink on one checkpoint in one process; it remembers the plan that it handed out last, which is what
lets the next epoch go on without a claim (docs/adr/0004-plan-identity.md).
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from onceonly import events
from onceonly.errors import AdoptionError, ConfigurationError
from onceonly.log import identity_token, open_log
from onceonly.runtime.checkpoint import SparkCheckpoint
from onceonly.runtime.coordinator import Coordinator
from onceonly.runtime.registry import claimed, load, strongest
from onceonly.runtime.settings import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onceonly.model import Plan, Vote
    from onceonly.ports import Sink
    from onceonly.runtime.registry import SinkClass
    from onceonly.runtime.settings import Settings

log = logging.getLogger("onceonly")

K = TypeVar("K")


class Closable(Protocol):
    """What ``Held`` asks of a thing."""

    def close(self) -> None: ...


V = TypeVar("V", bound=Closable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What travels to the tasks of one try at an epoch.

    It holds the sink's options, secrets included, because executors need them; it never shows them.
    ``token`` is the log's identity as the driver sees it: an executor that sees another one does not share
    the checkpoint.
    """

    plan: Plan
    query: str
    settings: Settings = field(repr=False)
    sink: SinkClass
    token: str | None


class Desk:
    """Plans, decides and aborts for one sink of one query. Driver, planner or commit process."""

    def __init__(
        self, settings: Settings, sink: SinkClass, *, actor: str, columns: tuple[tuple[str, str], ...]
    ) -> None:
        self.settings = settings
        self.checkpoint = SparkCheckpoint.at(settings.checkpoint)
        self.query = self.checkpoint.query()
        self._class = sink
        self._actor = actor
        self._sink = build(settings, sink)
        self._last: Plan | None = None
        self._fresh = identity_token(settings.checkpoint) is None
        if actor != "committer" and self._fresh:
            self._adopt(self.checkpoint.epoch())
        self._log = open_log(
            settings.checkpoint,
            query=self.query,
            keep=settings.history,
            create=actor != "committer",
        )
        self._coordinator = Coordinator(
            log=self._log,
            sinks={settings.sink: self._sink},
            guarantee=settings.guarantee,
            actor=actor,
            columns=columns,
            commit_timeout_s=settings.commit_timeout_s,
        )

    def plan(self, epoch: int, *, run: str = "") -> Assignment:
        """Resolve an epoch before its tasks run. Raises a typed error where the query must stop."""
        last, self._last = self._last, None
        continues = last.id if last is not None and last.epoch == epoch - 1 else None
        plan = self._coordinator.plan(
            epoch, barrier=self.checkpoint.barrier(epoch), run=run, continues=continues
        )
        self._last = plan
        return Assignment(
            plan=plan,
            query=self.query,
            settings=self.settings,
            sink=self._class,
            token=identity_token(self.settings.checkpoint),
        )

    def decide(self, plan: Plan, votes: list[Vote]) -> None:
        """Decide, and return when everything decided is visible."""
        self._coordinator.decide(plan, votes)

    def abort(self, plan: Plan, votes: list[Vote], *, run: str = "") -> None:
        """Give up a try; what is decided stays decided."""
        self._coordinator.abort(plan, votes, run=run)

    def close(self) -> None:
        """Give back the sink's connections. Idempotent."""
        self._sink.close()

    def _adopt(self, epoch: int) -> None:
        """Refuse, or take over, a checkpoint whose earlier epochs another sink has written."""
        before = sorted(number for number in self.checkpoint.committed() if number < epoch)
        if not before:
            return
        where = f"the checkpoint {self.settings.checkpoint} has no decision log, but {len(before)} epochs"
        if not self.settings.adopt:
            raise AdoptionError(
                f"{where} up to chk-{before[-1]} that another sink wrote",
                next_step="set onceonly.adopt=true to take it over from the next epoch on (the one in flight "
                "may double), or start on a new checkpoint",
            )
        log.warning(
            "Query %s: taken over from another sink at chk-%s; if that sink had begun this epoch, its rows "
            "appear twice, once from each.",
            self.query, epoch,
        )  # fmt: skip
        events.record("adopted", actor=self._actor, query=self.query, epoch=epoch)


def settings_of(options: Mapping[str, str], name: str, sink: SinkClass) -> Settings:
    """Read a query's options for this sink. Anywhere; pure. Raises ``ConfigurationError``."""
    return parse(options, default_name=name, default_guarantee=strongest(sink), claimed=claimed(sink))


def build(settings: Settings, sink: SinkClass) -> Sink:
    """Make the sink, and see that it offers the guarantee asked. Driver and executor."""
    made: Sink = load(sink)(dict(settings.options))
    offered = made.capabilities.guarantees
    if settings.guarantee not in offered:
        made.close()
        raise ConfigurationError(
            f"the sink {settings.sink!r} does not offer {settings.guarantee.value}",
            next_step="set onceonly.guarantee to one of " + ", ".join(sorted(offered)),
        )
    return made


class Held(Generic[K, V]):
    """Things of a process that are dear to make: at most ``limit``, the longest unused is closed first.

    Each is used by one thread at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._things: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def use(self, key: K, make: Callable[[], V]) -> Iterator[V]:
        """Give the thing of this key; one whose use raised is closed and made anew next time."""
        with self._lock:
            thing = self._things.pop(key) if key in self._things else make()
            try:
                yield thing
            except BaseException:
                thing.close()
                raise
            self._things[key] = thing
            while len(self._things) > self._limit:
                self._things.popitem(last=False)[1].close()
