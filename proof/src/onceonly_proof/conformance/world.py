"""One target with one query that writes to it, in the process of the tests: steps, and what must be seen after each."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from onceonly.model import AlreadyCommitted, Committed, Handle, RetryLater
from onceonly.ports import QueryContext, WriteContext
from onceonly.settings.registry import build, settings_of, strongest
from onceonly_proof.auditor.files import visible_files
from onceonly_proof.conformance.query import Query, Work
from onceonly_proof.conformance.workload import difference, read_rows, rows_of
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from onceonly.model import Outcome
    from onceonly.ports import Leftover, Sink
    from onceonly_proof.conformance.subject import Subject
    from onceonly_proof.conformance.workload import Row

PATIENCE_S = 20.0
"""How long a condition is waited for that comes a moment later: a time-out here is a broken promise."""
DONE = (Committed, AlreadyCommitted)


def broken(promise: str, why: str) -> AssertionError:
    """Say which promise is broken, and by what."""
    return AssertionError(f"{promise}: {why}")


@dataclass
class Attempt:
    """One attempt at one slot, step by step."""

    world: World
    sink: Sink
    transaction: Any

    def write(self, numbers: list[int]) -> None:
        self.sink.write(self.transaction, self.world.suite.batch(numbers))

    def pre_commit(self) -> Handle:
        """Prepare; return the handle as another process gets it, through JSON."""
        handle = self.sink.pre_commit(self.transaction)
        if handle is None:
            raise broken("pre_commit gives the handle of what it has prepared", "it gave None")
        wrong = {key: value for key, value in handle.data.items() if type(value) not in {str, int}}
        if wrong or not isinstance(handle.transaction, str):
            raise broken("a handle holds texts and whole numbers only", f"{handle!r}")
        data = json.loads(json.dumps(dict(handle.data)))
        return Handle(transaction=json.loads(json.dumps(handle.transaction)), data=data)


@dataclass
class World:
    """A target made by the suite's ``options``, and the id of the query that writes to it."""

    suite: Subject
    folder: Path
    query: str = field(default_factory=lambda: uuid.uuid4().hex)
    given: Mapping[str, str] | None = None
    """The options; None: a new target's."""

    def __post_init__(self) -> None:
        if self.given is None:
            place = self.folder / "target"
            place.mkdir(parents=True)
            self.given = self.suite.options(place)
        self.options = dict(self.given)
        self.name = self.suite.sink.name
        self.guarantee = strongest(self.suite.sink)
        self._made: list[Sink | Query | _Closing] = []
        self._facts: Mapping[str, str | int] | None = None
        self._driver: Sink | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._made:
            self._made.pop().close()
        self._driver = None

    def another(self, *, query: str | None = None, sink: str | None = None) -> World:
        """Another query, or the same one with a sink of another name, on the same target."""
        other = World(self.suite, self.folder, query=query or self.query, given=self.options)
        other.name = sink or self.name
        self._made.append(_Closing(other))
        return other

    # --- the sink, as the runtime makes it ------------------------------------------------------------------

    @property
    def context(self) -> QueryContext:
        return QueryContext(
            query=self.query, sink=self.name, guarantee=self.guarantee, columns=self.suite.columns_given()
        )

    def sink(self, **more: str) -> Sink:
        """Make an instance, as a process does."""
        given = {**self.options, **self.suite.choice(), **more}
        settings = settings_of(given, self.suite.sink.name, self.suite.sink).sink
        made = build(replace(settings, guarantee=self.guarantee), self.suite.sink)
        self._made.append(made)
        return made

    @property
    def driver(self) -> Sink:
        """The driver's own instance, which has checked the target."""
        if self._driver is None:
            self._driver = self.sink()
            self._facts = dict(self._driver.check(self.context))
        return self._driver

    @property
    def facts(self) -> Mapping[str, str | int]:
        assert self.driver is not None  # noqa: S101  it is made by asking for it
        return self._facts or {}

    # --- steps ----------------------------------------------------------------------------------------------

    def begin(
        self, *, epoch: int = 0, slot: int = 0, sink: Sink | None = None, gives_back: bool = False
    ) -> Attempt:
        facts = self.facts
        sink = sink or self.sink()
        context = WriteContext(
            query=self.query, sink=self.name, run="r1", epoch=epoch, plan=f"p{epoch}", slot=slot,
            attempt=uuid.uuid4().hex, guarantee=self.guarantee, facts=facts, gives_back=gives_back,
            early=self.suite.early,
        )  # fmt: skip
        return Attempt(self, sink, sink.begin_transaction(context))

    def prepared(self, numbers: list[int], *, epoch: int = 0, slot: int = 0) -> Handle:
        """Write and prepare; by a sink of its own, as an executor has."""
        attempt = self.begin(epoch=epoch, slot=slot)
        attempt.write(numbers)
        return attempt.pre_commit()

    def commit(self, handle: Handle, sink: Sink | None = None) -> Outcome:
        """Commit as the runtime does: "later" is tried again, within a bound."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            outcome = (sink or self.driver).commit(handle)
            if not isinstance(outcome, RetryLater) or time.monotonic() > deadline:
                return outcome
            time.sleep(0.02)

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Commit together as the runtime does, until none says "later"."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            outcomes = self.driver.commit_many(handles)
            if not any(isinstance(each, RetryLater) for each in outcomes) or time.monotonic() > deadline:
                return outcomes
            time.sleep(0.02)

    def committed(self, numbers: list[int], *, epoch: int = 0, slot: int = 0) -> Handle:
        """Write, prepare and commit."""
        handle = self.prepared(numbers, epoch=epoch, slot=slot)
        outcome = self.commit(handle)
        if not isinstance(outcome, DONE):
            raise broken("a commit of what was prepared succeeds", f"it answered {outcome}")
        return handle

    def open(self) -> list[Leftover]:
        """List what ``recover`` says is open."""
        return [each for each in self.driver.recover(self.context) if each.is_open]

    def sweep(self, keep: Iterable[Handle] = ()) -> None:
        """Abort what no handle to be kept names, as the runtime does."""
        kept = {handle.transaction for handle in keep}
        for leftover in [each for each in self.driver.recover(self.context) if each.transaction not in kept]:
            self.driver.abort(leftover.handle)

    def run(self, **work: Any) -> Query:  # noqa: ANN401  the fields of ``Work``
        """Begin a life of the query in this process."""
        query = Query(self.suite, self.work(**work))
        self._made.append(query)
        return query

    def work(self, **more: Any) -> Work:  # noqa: ANN401  as above
        given: dict[str, Any] = {
            "query": self.query,
            "checkpoint": str(self.folder / "checkpoint"),
            "options": self.options,
            "guarantee": self.guarantee.value,
        }
        return Work(**{**given, **more})

    # --- what must be seen ----------------------------------------------------------------------------------

    def visible(self) -> Counter[Row]:
        return read_rows(self.suite.visible(self.options))

    @property
    def companion(self) -> Path:
        """The folder of the second sink under one decision."""
        return self.folder / "beside"

    def rows_beside(self) -> Counter[Row]:
        """Read what anybody sees in the second sink: files whose path has no hidden part."""
        import pyarrow.parquet as pq

        seen: Counter[Row] = Counter()
        for path in sorted(visible_files(self.companion)):
            seen.update(read_rows(pq.ParquetFile(path).read().to_pylist()))
        return seen

    def rows(self, numbers: list[int]) -> Counter[Row]:
        return Counter(rows_of(self.suite.batch(numbers)) if numbers else ())

    def expect(self, numbers: list[int], promise: str) -> None:
        """See exactly these rows, each once. What is missing may come a moment later, what is too much is wrong."""
        self.expect_rows(self.rows(numbers), promise, self.visible)

    def expect_rows(self, wanted: Counter[Row], promise: str, visible: Callable[[], Counter[Row]]) -> None:
        seen: Counter[Row] = Counter()

        def looked() -> bool:
            nonlocal seen
            seen = visible()
            return bool(seen - wanted) or seen == wanted

        wait_for(looked)
        if seen != wanted:
            raise broken(promise, difference(seen, wanted))

    def expect_no_orphans(self, promise: str) -> None:
        """See that nothing is open: neither does ``recover`` list it, nor does the suite's ``orphans``."""
        found: list[str] = []

        def looked() -> bool:
            found[:] = [each.transaction for each in self.open()] if self._recovers else []
            found.extend(str(each) for each in self.suite.orphans(self.options))
            return not found

        if not wait_for(looked):
            raise broken(promise, f"{len(found)} are left, e.g. {found[0]}")

    @property
    def _recovers(self) -> bool:
        return self.suite.sink.capabilities.recovers


class _Closing:
    """Closes a world where sinks are closed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def close(self) -> None:
        self._world.__exit__()


def wait_for(condition: Callable[[], bool], *, seconds: float | None = None) -> bool:
    """Poll a condition until it holds; false where it did not in time."""
    return until(condition, PATIENCE_S if seconds is None else seconds, poll_s=0.01)


def refused(action: Callable[[], object]) -> Exception | None:
    """Return what an action raises, None where it raises nothing."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  whatever a sink raises
        return error
    return None


def batch_rows(batch: pa.RecordBatch) -> Counter[Row]:
    """Count the rows of a batch."""
    return Counter(rows_of(batch))
