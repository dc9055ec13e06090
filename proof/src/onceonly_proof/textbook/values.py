"""What is recorded of the textbook's runs. Values alone: who draws reads these, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotation at run time

import msgspec

VERSION = 1


class Made(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and by what a recording was made."""

    date: str
    commit: str
    versions: Mapping[str, str]
    machine: Mapping[str, str | int | float]
    seconds: float


class Fits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of the code a recording stands on: where it is another, the recording is to be made anew."""

    log_format: int
    failpoints: tuple[str, ...]
    """The crash points that every query passes."""
    moves: tuple[str, ...]
    """The rows of the protocol's table, as state and event."""


class Look(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What anybody sees of one epoch at one moment, from outside.

    ``visible`` are the rows that a ``read_committed`` reader gets, ``waiting`` those that stand behind them,
    uncommitted; ``open`` is how many transactions of the query the broker holds open. ``link`` is the last word of the
    log, empty without one; ``barrier`` and ``noted`` say whether Spark's ``offsets/N`` and ``commits/N`` are there.
    """

    visible: tuple[str, ...]
    waiting: tuple[str, ...]
    open: int
    barrier: bool
    link: str
    receipt: bool
    noted: bool


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of the protocol, as the event log has it. ``slot`` is -1 where it is nobody's."""

    life: int
    kind: str
    slot: int = -1
    note: str = ""


class Crash(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that was killed at a crash point of ``chk-1``, and what was seen before, between and after.

    ``first`` is the point of an earlier kill, without which recovery would not come to this one.
    """

    point: str
    where: str
    first: str = ""
    before: Look
    between: Look
    after: Look
    steps: tuple[Step, ...]


class Crashes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of two partitions, passed on to Kafka; ``ranges`` are by epoch: first offset, and the one after the last."""

    version: int = VERSION
    made: Made
    fits: Fits
    partitions: tuple[tuple[str, ...], ...]
    ranges: tuple[tuple[tuple[int, int], ...], ...]
    commits: tuple[Step, ...]
    aborts: tuple[Step, ...]
    crashes: tuple[Crash, ...]


class Life(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One life of the counting job: what it has read, how it ended, and what was on disk then.

    ``read`` are the offsets of each try, ``counted`` what was in memory when it was killed, beside the snapshot.
    """

    read: tuple[tuple[int, int], ...]
    killed_at: str
    counted: Mapping[str, int] = {}
    barriers: tuple[int, ...]
    noted: tuple[int, ...]
    links: tuple[str, ...]
    results: tuple[str, ...]


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Page views by app from one partition, with state; ``states`` are by epoch, asked of Spark's own reader."""

    version: int = VERSION
    made: Made
    fits: Fits
    records: int
    views: Mapping[str, int]
    """By app, how many views each record counts."""
    barriers: tuple[int, ...]
    states: tuple[Mapping[str, int], ...]
    lives: tuple[Life, ...]


class Growth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of a state store, version by version: each epoch's changes, and what a snapshot has added and kept.

    ``keys`` is how many keys the state has by then. Sizes are in bytes.
    """

    class Version(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        """What an epoch has left."""

        keys: int
        changed: int
        changelog: int
        snapshot: int | None = None
        added: tuple[int, ...] = ()
        kept: tuple[int, ...] = ()

    version: int = VERSION
    made: Made
    fits: Fits
    rows: int
    versions: tuple[Version, ...]


class Aligned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of ``onceonly verify unaligned``, small enough to be shown row by row."""

    class Operator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        """What one of the two has counted in the end: by window, and by epoch what was counted again."""

        windows: tuple[tuple[str, int, int], ...]
        """Name, how many rows went in, how many were counted."""
        again: Mapping[str, int]

    class Kill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        """Where the whole job was killed."""

        epoch: int
        point: str

    version: int = VERSION
    made: Made
    fits: Fits
    rows: tuple[tuple[int, int], ...]
    """By epoch, how many rows each of the two partitions has given."""
    kills: tuple[Kill, ...]
    aligned: Operator
    unaligned: Operator
