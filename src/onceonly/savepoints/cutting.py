"""What a savepoint of a checkpoint is to hold: read from its log and Spark's files, as they are at this moment."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly import background, offsets
from onceonly.checkpoint.batches import is_batch
from onceonly.errors import ConfigurationError, LogError
from onceonly.guards import known
from onceonly.log import files as log_files
from onceonly.log import origin
from onceonly.log.identity import trail
from onceonly.log.left import was_restored
from onceonly.log.opening import look
from onceonly.log.place import FOLDER, home_of, log_store
from onceonly.savepoints import resolve
from onceonly.sources.kinesis.carried import DeletedError, carried
from onceonly.stores.opened import address_of, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.log.identity import Identity
    from onceonly.log.survey import Survey
    from onceonly.model import Link, Receipt
    from onceonly.stores.port import RewritableStore

_ID = "metadata"
_IDENTITY = re.compile(rf"{FOLDER}/identity(\.\d+)?\.json")
_ARCHIVES_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One epoch, what there is of it in the log, and the names of what is to be copied.

    ``home`` is where its query was at home: here, where it was restored elsewhere since. ``own`` are the bytes of those
    files that were read already: what is copied has to fit to them; and of the ranges of sources, which are not in the
    checkpoint.
    """

    epoch: int
    names: tuple[str, ...]
    home: str
    own: dict[str, bytes]
    identity: Identity
    link: Link
    receipt: Receipt
    commit: str
    provider: str


def find_cut(checkpoint: str, epoch: int | None) -> Cut:
    """Find what a savepoint of an epoch holds, or of the newest that is whole. Any process; reads only.

    Raises ``ConfigurationError`` for an epoch out of reach, and where the query was restored elsewhere since, unless an
    epoch is named; ``LogError`` where there is none at all, or Spark's id is gone,
    ``UnavailableError``; ``MissingError`` where something went away meanwhile, and it is to be tried again.
    """
    log, identity = look(checkpoint)
    if is_batch(identity.query):
        raise ConfigurationError(
            f"{checkpoint} is the log of a batch, after which nothing goes on",
            next_step="nothing: run again under its id, a batch finds itself done",
        )
    here = home_of(checkpoint)
    if epoch is None and identity.address != here and was_restored(log):
        raise ConfigurationError(
            f"{checkpoint} is where query {identity.query} was before it was restored from a savepoint to "
            f"{identity.address}: what it has decided since is there",
            next_step=f"make one of {identity.address}; or name an epoch of before with --epoch, if it is meant",
        )
    store = open_store(address_of(checkpoint))
    names = store.tree("")
    if _ID not in names:
        raise LogError(
            f"{store.where(_ID)} is gone, in which Spark keeps the query's id: nothing could be started from such a "
            "savepoint",
            next_step="put it back from a backup or a savepoint of this checkpoint",
        )
    ours = log.check()
    complete = [at for at in resolve.candidates(names) if at > ours.covered_to and at in ours.receipts]
    if epoch is not None and epoch not in complete:
        raise _out_of_reach(epoch, complete, "")
    why: resolve.MissingError | None = None
    for at in complete[::-1] if epoch is None else [epoch]:
        link, receipt = log.chain(at)[-1:], log.receipt(at)
        if not link or receipt is None:
            why = resolve.MissingError(f"what is noted of chk-{at}")
            continue
        try:
            barrier, commit = _noted(store, at, link[0].barrier)
            found = resolve.needed(names, at, barrier=barrier, commit=commit)
            archives = _archives(store, found.archives)
            ranges = _ranges(barrier)
        except resolve.MissingError as error:
            why = error
            continue
        listed = [name for archive, data in archives.items() for name in _listed(archive, data)]
        return Cut(
            epoch=at,
            names=tuple(dict.fromkeys([*found.names, *listed, *_of_log(names, ours, at), *ranges])),
            home=here if here in _homes(checkpoint, identity) else identity.address,
            own={**archives, **ranges, f"offsets/{at}": barrier.encode(), f"commits/{at}": commit.encode()},
            identity=identity,
            link=link[0],
            receipt=receipt,
            commit=commit,
            provider=resolve.provider(names),
        )
    if why is None:
        raise LogError(
            f"no epoch of query {identity.query} is complete, so there is nothing to make a savepoint of",
            next_step="wait until onceonly checkpoints list shows one as complete",
        )
    if epoch is not None:
        whole = [at for at in complete if _is_whole(store, names, at, log.chain(at)[-1:])]
        raise _out_of_reach(epoch, whole, f": {why}")
    raise why


def _homes(checkpoint: str, found: Identity) -> list[str]:
    """Return where a log was at home, and is; ``found`` is what it says of now."""
    if found.address == home_of(checkpoint):
        return [found.address]
    return [each.address for each in trail(log_store(checkpoint))]


def _of_log(names: Iterable[str], ours: Survey, epoch: int) -> list[str]:
    """Return what our own folder has up to an epoch: the log, and what the guards know of the sources."""
    log = [log_files.segment(*each) for each in ours.segments]
    for at, count in ours.chains.items():
        if at <= epoch:
            log += [*(log_files.link(at, index) for index in range(count)), log_files.receipt(at)]
    single = {known.NAME, f"{FOLDER}/{origin.NAME}"}
    beside = [name for name in names if name in single or _IDENTITY.fullmatch(name)]
    return [*beside, *(f"{FOLDER}/{name}" for name in log)]


def _archives(store: RewritableStore, names: Sequence[str]) -> dict[str, bytes]:
    found = background.spread(
        "onceonly-read", store.get, names, threads_max=min(store.abreast, _ARCHIVES_AT_ONCE)
    )
    for name, data in zip(names, found, strict=True):
        if data is None:
            raise resolve.MissingError(name)
    return {name: data for name, data in zip(names, found, strict=True) if data is not None}


def _ranges(barrier: str) -> dict[str, bytes]:
    """Read where the tasks of an epoch ended, of sources that keep that elsewhere. Raises ``MissingError``."""
    try:
        return {
            f"{FOLDER}/{name}": data
            for line in offsets.barrier(barrier)
            for name, data in carried(line).items()
        }
    except DeletedError as error:
        raise resolve.MissingError(str(error)) from None


def _listed(name: str, data: bytes) -> tuple[str, ...]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return resolve.of_archive(name, archive.read("metadata").decode())
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise LogError(
            f"{name} is no archive of state as RocksDB's provider writes it: damaged ({error})",
            next_step="make a savepoint of another epoch with --epoch",
        ) from error


def _noted(store: RewritableStore, epoch: int, decided: Sequence[str]) -> tuple[str, str]:
    """Read the texts of ``offsets/N`` and ``commits/N``, which Spark does not sync: power may have torn them.

    Raises ``MissingError`` where one is not there, or not whole, or has other ends than those ``decided``.
    """
    barrier, commit = _text(store, f"offsets/{epoch}"), _text(store, f"commits/{epoch}")
    if decided and not offsets.is_same(tuple(decided), offsets.barrier(barrier)):
        raise resolve.MissingError(f"offsets/{epoch} as it was decided")
    try:
        is_whole = isinstance(json.loads(commit.partition("\n")[2]), dict)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise resolve.MissingError(f"commits/{epoch}, which is torn,")
    if epoch > 0:
        _text(store, f"offsets/{epoch - 1}")
    return barrier, commit


def _text(store: RewritableStore, name: str) -> str:
    try:
        text = (store.get(name) or b"").decode()
    except UnicodeDecodeError:
        text = ""
    if not text.startswith("v"):
        raise resolve.MissingError(f"a whole {name}")
    return text


def _is_whole(store: RewritableStore, names: Sequence[str], epoch: int, link: Sequence[Link]) -> bool:
    try:
        barrier, commit = _noted(store, epoch, link[0].barrier if link else ())
        resolve.needed(names, epoch, barrier=barrier, commit=commit)
        _ranges(barrier)
    except resolve.MissingError:
        return False
    return True


def _out_of_reach(epoch: int, complete: Sequence[int], why: str) -> ConfigurationError:
    span = (
        f"name one from {complete[0]} to {complete[-1]}" if complete else "there is none yet that it could be"
    )
    return ConfigurationError(
        f"no savepoint can be made of chk-{epoch}{why or ', of which Spark or the log no longer has, or not yet, all'}",
        next_step=f"{span}, or none for the newest; spark.sql.streaming.minBatchesToRetain says how many Spark keeps",
    )
