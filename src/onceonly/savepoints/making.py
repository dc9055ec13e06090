"""Making a savepoint: the files of a decided epoch, beside a running job or with it down; the manifest last.

What is listed may be gone when it is copied: a running query takes old files away. Then all is listed anew, and the
newest epoch is a later one. Killed anywhere, it leaves a folder without a manifest, which ``drop`` takes away; where a
copy fails, it is taken away at once.
"""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from onceonly import events, failpoints, offsets
from onceonly.errors import OnceonlyError, UnavailableError
from onceonly.jars.installed import installed
from onceonly.log.history import by_sink
from onceonly.log.place import log_store
from onceonly.log.runs import RunFiles
from onceonly.model import handles_of
from onceonly.savepoints import manifest, resolve
from onceonly.savepoints.copying import Copier, unheard
from onceonly.savepoints.cutting import find_cut
from onceonly.savepoints.manifest import Output, Savepoint
from onceonly.savepoints.place import drop
from onceonly.stores.opened import address_of
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Link, Receipt
    from onceonly.savepoints.copying import Told
    from onceonly.stores.address import Address
    from onceonly.stores.port import RewritableStore

_TRIES: Final = 10
_SIGN_S: Final = 60.0


def create(
    checkpoint: str,
    place: str,
    *,
    epoch: int | None = None,
    told: Told = unheard,
    name: str = "",
    by_itself: bool = False,
) -> Savepoint:
    """Make a savepoint of a checkpoint in a place: of an epoch, or of the newest that is decided and complete.

    Any process, with the job up or down; it changes nothing in the checkpoint. ``told`` hears how far it has come, from
    any thread. ``name`` is that of the savepoint's folder, drawn where it is empty; ``by_itself`` says that the query
    makes it, and may drop it. When it returns, all is durable.

    Raises ``ConfigurationError`` where the epoch is out of reach (it names the range), ``LogError`` where there is no
    decision log, ``UnavailableError``.
    """
    source, into = address_of(checkpoint), address_of(place, what="the place of savepoints")
    why, advice = "", "raise spark.sql.streaming.minBatchesToRetain: Spark takes files away too soon"
    for _ in range(_TRIES):
        try:
            cut = find_cut(source.location, epoch)
        except resolve.MissingError as error:
            why = f"{error} is not there any more"
            if isinstance(error, resolve.CompactedError):
                advice = "run this again when the epoch in flight is complete; with the job down, after its next start"
            continue
        called = name or _called(cut.epoch)
        copier = Copier(source, into.below(called).below(manifest.FILES.rstrip("/")))
        folder = Copier(source, into.below(called))
        begun = manifest.encode_begun(cut.identity.query)
        try:
            folder.put(manifest.BEGUN, begun)
            copied, gone = copier.copy_all(cut.names, own=cut.own, told=_Signing(folder.target, told))
        except OnceonlyError:
            # A place that is full would stay so by what each try leaves.
            with suppress(OnceonlyError):
                drop(into.below(called))
            raise
        if not gone:
            break
        why = f"{gone[0]} was taken away while it was copied"
        # Another try begins with an empty folder: what is left in it would be taken for a part of it.
        for each in copied:
            copier.target.delete(each.name)
        folder.target.delete(manifest.BEGUN)
    else:
        raise UnavailableError(
            f"no savepoint of {checkpoint} could be made in {_TRIES} tries: {why}", next_step=advice
        )
    found = Savepoint(
        name=called,
        query=cut.identity.query,
        log=cut.identity.log,
        home=cut.home,
        epoch=cut.epoch,
        made=events.stamp(),
        barrier=offsets.barrier(cut.own[f"offsets/{cut.epoch}"].decode()),
        watermark_ms=manifest.watermark_of(cut.commit),
        provider=cut.provider,
        spark=_spark(source.location, cut.link, by_itself=by_itself),
        sinks=_outputs(cut.link, cut.receipt),
        by_itself=by_itself,
        files=tuple(sorted(copied, key=lambda each: each.name)),
    )
    failpoints.hit("savepoint.before_manifest")
    _require_begun(folder, begun, into.below(called))
    put_once(folder.target, manifest.NAME, manifest.encode(found))
    _require_begun(folder, begun, into.below(called))
    failpoints.hit("savepoint.after_manifest")
    folder.target.delete(manifest.SIGN)
    return found


class _Signing:
    """Leaves word now and then that a savepoint comes further: nobody is to take it for broken off. Any thread."""

    def __init__(self, store: RewritableStore, told: Told) -> None:
        self._store, self._told = store, told
        self._at = time.monotonic()  # until then, its name tells

    def __call__(self, done: int, of: int, size: int) -> None:
        self._told(done, of, size)
        now = time.monotonic()
        if now - self._at >= _SIGN_S:
            self._at = now
            with suppress(OnceonlyError):  # what is wrong with the place, the next copy finds
                self._store.replace(manifest.SIGN, manifest.encode_sign())


def _require_begun(folder: Copier, begun: bytes, address: Address) -> None:
    """See that nobody drops what is being made: a part of its files may be gone. Raises ``UnavailableError``."""
    if folder.target.get(manifest.BEGUN) != begun:
        drop(address)
        raise UnavailableError(
            f"the savepoint {address.shown} was dropped while it was made", next_step="make another one"
        )


def address_in(place: str, name: str) -> str:
    """Return the address of a savepoint, as people write it. Pure, but for Hadoop's settings."""
    return address_of(place, what="the place of savepoints").below(name).shown


def _called(epoch: int) -> str:
    """Draw the name of a savepoint's folder: its epoch, when it is made, and a word that makes it the only one."""
    moment = re.sub(r"[-:.]", "", events.stamp().at)
    return f"chk-{epoch}-{moment}-{secrets.token_hex(3)}"


def _outputs(link: Link, receipt: Receipt) -> tuple[Output, ...]:
    handles = handles_of(link.output)
    rows = by_sink(link)
    return tuple(
        Output(
            sink=sink,
            target=link.settings.get(sink, {}),
            rows=rows.get(sink, (0, 0))[0],
            transactions=tuple(each.transaction for each in handles.get(sink, ())),
            outcomes=_outcomes(link, receipt, sink),
        )
        for sink in sorted({*link.settings, *handles})
    )


def _outcomes(link: Link, receipt: Receipt, sink: str) -> Mapping[str, int]:
    """Return what became of the transactions of a sink, by the outcome's name.

    A receipt counts those of all sinks together. Where it has several names for several sinks, as after a crash amid
    the commits, nobody knows which is whose, and they are ``settled``.
    """
    carried = sum(vote.sink == sink and vote.handle is not None for vote in link.carried)
    pending = Counter(vote.sink for vote in link.pending)
    found: Mapping[str, int] = {"settled": pending[sink]}
    if len(receipt.outcomes) == 1:
        found = dict.fromkeys(receipt.outcomes, pending[sink])
    elif set(pending) == {sink}:
        found = receipt.outcomes
    return +(Counter(found) + Counter(committed=carried))


def _spark(checkpoint: str, link: Link, *, by_itself: bool) -> str:
    """Return the version of Spark of the run that decided an epoch; empty where nothing tells.

    What is installed here tells it in a process of the job alone: an operator's machine may have another, or none.
    """
    with suppress(OnceonlyError):  # for people: a savepoint is whole without it
        run = RunFiles(log_store(checkpoint)).of(link.run)
        if run is not None and run.spark:
            return run.spark
        if by_itself:
            return installed().version
    return ""
