"""The kinds of faults: how often each is drawn, where it may strike, and how one is drawn. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from onceonly import failpoints
from onceonly_proof.campaign import queries, way
from onceonly_proof.campaign.faults import (
    OPENER,
    AtPoint,
    CutTarget,
    FreezeWorker,
    KillBroker,
    KillDriver,
    KillDriverAt,
    KillExecutorAt,
    KillSource,
    KillStore,
    KillTarget,
    KillWorker,
    Pause,
    RemoveWaitingAt,
    StopBroker,
    TakeFilesAt,
    WakeLateAt,
)
from onceonly_proof.campaign.targets import APPENDED, SERVED, TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from onceonly_proof.campaign.fault import Fault

# Where a pause or a broker's death is most telling: while rows are written, prepared, decided and committed.
_BROKER_STEPS = (
    "slot.during_write",
    "slot.before_prepare",
    "link.after_put",
    "commit.before_handle",
    "sweep.before",
)
# Where some of an epoch's files, or all, are visible, and its receipt is still to come, or just there.
_TAKING_STEPS = (
    "commit.after_handle",
    "complete.before",
    "receipt.before_put",
    "receipt.after_put",
    "sweep.before",
)
# Where the log, or Spark, is about to ask the store of the checkpoint, or has just done so.
_STORE_STEPS = (
    "slot.before_prepare",
    "link.before_put",
    "link.after_put",
    "receipt.before_put",
    "receipt.after_put",
)
# Where a source is asked, or has just been read; its server is asked again when the step goes on.
_SOURCE_STEPS = ("plan.after_resolve", "slot.during_write", "link.after_put", "receipt.after_put")
# Where rows wait for their commit, and are sure to be there.
_WAITING_STEPS = ("link.before_put", "link.after_put")
# Where a worker can stand still while others write its epoch, and the ones after it.
_LATE_STEPS = ("slot.during_write", "slot.before_prepare", "slot.after_prepare")
# Where a target is asked, or has just answered: what is left open is looked for, an epoch is applied.
_TARGET_STEPS = ("link.before_put", "commit.before_handle", "commit.after_handle", "sweep.before")
# Where executors write to one, rows are on their way before the decision.
_TARGET_SLOTS = ("slot.during_write", "slot.before_prepare")
_SLOTS = tuple(name for name in failpoints.EVERYWHERE if name.startswith("slot."))
_OF_SINKS = ("commit.before_handle", "commit.after_handle", "complete.before")
_PASSES_MAX = 3
# A receiver folds once in some seconds.
_SELDOM = frozenset({"journal.before_fold", "journal.after_fold"})

Draw: TypeAlias = "Callable[[Random, str], Fault]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault: how often it is drawn among the others, where, and how one is drawn.

    ``points`` are the crash points that it is dealt, each once until all are used up; a kind without has one
    card, the empty name. Where a connector has none, the kind is not drawn. ``dear`` faults cost a new driver or
    broker, seconds instead of one. ``later`` is for a kind that came when rounds had been recorded: it is drawn from
    numbers of its own and put behind the others, so that a recorded round can still be run again. ``query`` is the only
    one in which it is drawn, empty for any. ``served`` is for a checkpoint on a store whose servers can die, ``folder``
    for one in a folder, beside which files are in one. ``sources`` are those that it is of, empty for any; ``broker``
    says that it needs one that is read or written, ``rows`` that every epoch has to write some, as it does without
    windows, ``executors`` that these are processes of their own, and ``speculation`` that each has a host.
    """

    draw: Draw
    weight: int
    points: Callable[[str], Sequence[str]] = lambda _: ("",)
    dear: bool = False
    later: bool = False
    query: str = ""
    served: bool = False
    folder: bool = False
    sources: frozenset[str] = frozenset()
    broker: bool = False
    rows: bool = False
    executors: bool = False
    speculation: bool = False


def in_one_process(connector: str) -> bool:
    """Say whether planner and commit are the driver itself, so that their death is the driver's: several sinks."""
    return "+" in connector


def _every(connector: str) -> Sequence[str]:
    return (*failpoints.EVERYWHERE, *_between_sinks(connector))


def _between_sinks(connector: str) -> Sequence[str]:
    """Points between one sink and the next one, where several share a decision."""
    sinks = connector.split("+")
    return [f"{point}[{sink}]" for point in _OF_SINKS for sink in sinks] if len(sinks) > 1 else []


def _in_workers(connector: str) -> Sequence[str]:
    """Points whose process can die without the driver."""
    return [
        name for name in failpoints.EVERYWHERE if name.startswith("slot.") or not in_one_process(connector)
    ]


def _ordinary(connector: str) -> Sequence[str]:
    return [name for name in _every(connector) if name not in OPENER]


def _on_broker(_: str) -> Sequence[str]:
    return _BROKER_STEPS


def _at_target(connector: str) -> Sequence[str]:
    sinks = set(connector.split("+"))
    more = _TARGET_SLOTS if sinks & APPENDED else ()
    return (*_TARGET_STEPS, *more) if sinks & SERVED else ()


def _served(connector: str) -> Sequence[str]:
    return ("",) if SERVED & set(connector.split("+")) else ()


def _waiting(connector: str) -> Sequence[str]:
    return _WAITING_STEPS if TARGETS.keys() & set(connector.split("+")) else ()


def _late(connector: str) -> Sequence[str]:
    return _LATE_STEPS if TARGETS.keys() & set(connector.split("+")) else ()


def _taking(connector: str) -> Sequence[str]:
    return _TAKING_STEPS if "files" in connector.split("+") else ()


KINDS: dict[str, Kind] = {
    "kill": Kind(
        draw=lambda draw, point: AtPoint(point=point, nth=_nth(draw, point)), weight=30, points=_in_workers
    ),
    "raise": Kind(
        draw=lambda draw, point: AtPoint(point=point, action="raise", nth=_nth(draw, point)),
        weight=4,
        points=_ordinary,
    ),
    "pause": Kind(
        draw=lambda draw, point: Pause(point=point, nth=_nth(draw, point), seconds=draw.uniform(0.1, 1.5)),
        weight=3,
        points=_ordinary,
    ),
    "kill worker": Kind(
        draw=lambda draw, _: KillWorker(delay_s=draw.uniform(0, 0.6), which=draw.random()), weight=5
    ),
    "freeze worker": Kind(
        draw=lambda draw, _: FreezeWorker(
            delay_s=draw.uniform(0, 0.6), which=draw.random(), seconds=draw.uniform(0.3, 2.0)
        ),
        weight=1,
    ),
    "kill driver at": Kind(
        draw=lambda draw, point: KillDriverAt(point=point, nth=_nth(draw, point)),
        weight=3,
        points=_every,
        dear=True,
    ),
    "take files at": Kind(
        draw=lambda draw, point: TakeFilesAt(
            point=point,
            nth=_nth(draw, point),
            moves=draw.random() < 0.5,  # noqa: PLR2004  as often as not
        ),
        weight=2,
        points=_taking,
        dear=True,
        later=True,
        folder=True,
    ),
    "kill driver": Kind(draw=lambda draw, _: KillDriver(delay_s=draw.uniform(0, 0.8)), weight=1, dear=True),
    "kill broker": Kind(
        draw=lambda draw, point: KillBroker(point=point, nth=_nth(draw, point), down_s=draw.uniform(0, 1.0)),
        weight=1,
        points=_on_broker,
        dear=True,
        broker=True,
    ),
    "stop broker": Kind(
        draw=lambda draw, _: StopBroker(delay_s=draw.uniform(0, 0.6), down_s=draw.uniform(0, 1.0)),
        weight=1,
        dear=True,
        broker=True,
    ),
    "kill store": Kind(
        draw=lambda draw, point: KillStore(
            point=point, nth=_nth(draw, point), which=draw.random(), down_s=draw.uniform(0, 1.0)
        ),
        weight=2,
        points=lambda _: _STORE_STEPS,
        dear=True,
        later=True,
        served=True,
    ),
    "kill target": Kind(
        draw=lambda draw, point: KillTarget(
            point=point,
            nth=_nth(draw, point),
            after_s=draw.uniform(0, 0.02),
            down_s=draw.uniform(0, 1.0),
        ),
        weight=6,
        points=_at_target,
        dear=True,
    ),
    "cut connection": Kind(draw=lambda _draw, _: CutTarget(), weight=4, points=_served),
    "remove waiting rows at": Kind(
        draw=lambda _draw, point: RemoveWaitingAt(point=point),
        weight=3,
        points=_waiting,
        folder=True,
        rows=True,
    ),
    "wake late at": Kind(
        draw=lambda _draw, point: WakeLateAt(point=point), weight=3, points=_late, dear=True
    ),
    "kill source": Kind(
        draw=lambda draw, point: KillSource(point=point, nth=_nth(draw, point), down_s=draw.uniform(0, 1.0)),
        weight=8,
        points=lambda _: _SOURCE_STEPS,
        dear=True,
        sources=way.SERVED,
    ),
    "kill receiver at": Kind(
        draw=lambda draw, point: AtPoint(point=point, nth=_nth(draw, point)),
        weight=12,
        points=lambda _: failpoints.OF_JOURNALS,
        sources=way.JOURNALED,
    ),
    "kill driver at journal": Kind(
        draw=lambda draw, point: KillDriverAt(point=point, nth=_nth(draw, point)),
        weight=4,
        points=lambda _: failpoints.OF_JOURNALS,
        dear=True,
        sources=way.JOURNALED,
    ),
    "kill at ranges": Kind(
        draw=lambda draw, point: AtPoint(point=point, nth=_nth(draw, point)),
        weight=12,
        points=lambda _: failpoints.OF_RANGES,
        sources=way.RANGED,
    ),
    "kill driver at ranges": Kind(
        draw=lambda draw, point: KillDriverAt(point=point, nth=_nth(draw, point)),
        weight=4,
        points=lambda _: failpoints.OF_RANGES,
        dear=True,
        sources=way.RANGED,
    ),
    "kill executor at": Kind(
        draw=lambda draw, point: KillExecutorAt(point=point, nth=_nth(draw, point)),
        weight=12,
        points=lambda _: _SLOTS,
        dear=True,
        executors=True,
    ),
    "kill executor at ranges": Kind(
        draw=lambda draw, point: KillExecutorAt(point=point, nth=_nth(draw, point)),
        weight=4,
        points=lambda _: failpoints.OF_RANGES,
        dear=True,
        executors=True,
        sources=way.RANGED,
    ),
    # For long enough that Spark starts a second attempt, which may be through before the first goes on, or not.
    "hold task": Kind(
        draw=lambda draw, point: Pause(point=point, nth=_nth(draw, point), seconds=draw.uniform(1.0, 5.0)),
        weight=20,
        points=lambda _: _SLOTS,
        executors=True,
        speculation=True,
    ),
    "hold task at ranges": Kind(
        draw=lambda draw, point: Pause(point=point, nth=_nth(draw, point), seconds=draw.uniform(1.0, 5.0)),
        weight=8,
        points=lambda _: failpoints.OF_RANGES,
        executors=True,
        speculation=True,
        sources=way.RANGED,
    ),
    "kill at letters": Kind(
        draw=lambda draw, point: AtPoint(point=point, nth=_nth(draw, point)),
        weight=10,
        points=lambda _: failpoints.OF_LETTERS,
        later=True,
        query=queries.LETTERS,
    ),
}


def _nth(draw: Random, point: str) -> int:
    return 1 if point in OPENER or point in _SELDOM else draw.randint(1, _PASSES_MAX)
