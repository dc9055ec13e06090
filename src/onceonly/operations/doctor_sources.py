"""Whether the sources of a checkpoint still have what it goes on with, and for how long yet. Reads only; no Spark.

A checkpoint holds no addresses of sources, as they may hold secrets. Files need none. A topic is looked for in the
clusters of the query's Kafka sinks, where the ids that its guard has noted prove that it is the same one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onceonly.errors import JournalError, OnceonlyError, SourceChangedError
from onceonly.guards.source import KAFKA, Source
from onceonly.model import LinkKind, seconds_of
from onceonly.operations import sinks, sources_left
from onceonly.operations.inputs_left import missing_inputs
from onceonly.operations.probes import NEAR, Sick, Unasked
from onceonly.settings.query import SOURCE_CHANGED, GoOn
from onceonly.settings.registry import BUILT_IN
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Link, Receipt
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given

_GO_ON = (
    f"start once with {SOURCE_CHANGED}={GoOn.GO_ON.value} (of other sources than Kafka and files: "
    "failOnDataLoss=false)"
)


def kept(checkpoint: Checkpoint, given: Given, sources: Mapping[str, str]) -> None:
    """See that the sources have what follows the newest epoch that was decided."""
    decided, _ = _newest(checkpoint)
    if decided is None:
        return
    if missing := missing_inputs(checkpoint, decided.barrier):
        raise Sick(
            f"the query goes on after chk-{decided.epoch} with {n(len(missing), 'file')} that are there no more, as "
            f"{missing[0]}",
            f"put them back where they were; or, to do without their rows, {_GO_ON}",
        )
    options, reads = _reads(checkpoint, decided, given, sources)
    try:
        unasked = sources_left.look(reads, options)
    except (SourceChangedError, JournalError) as error:
        raise Sick(
            f"{error.what}: what follows chk-{decided.epoch} cannot be read",
            f"bring back what is gone, if there is a copy; or, to do without these rows, {_GO_ON}",
        ) from None
    if unasked:
        raise Unasked(unasked[0].what, unasked[0].typed)


def has_time(checkpoint: Checkpoint, given: Given, sources: Mapping[str, str]) -> None:
    """See that the sources keep what follows until a job that is down is started, if that is soon."""
    decided, receipt = _newest(checkpoint)
    if decided is None or checkpoint.run.alive:
        return
    moment = seconds_of(receipt.stamp if receipt is not None else None) or seconds_of(decided.stamp)
    options, reads = _reads(checkpoint, decided, given, sources)
    for each in reads:
        own = each.own(options)
        told = each.kind.keeps(each.offset, own) if moment and own else None
        if told is None:
            continue
        what, kept_s = told
        down_s = time.time() - moment
        if down_s > NEAR * kept_s:
            raise Sick(
                f"nothing was read since chk-{decided.epoch}, {down_s:.0f} s ago, and {what} keeps rows for "
                f"{kept_s:g} s: those that follow are about to go",
                "start the query now, or give the source a longer retention",
            )


def _newest(checkpoint: Checkpoint) -> tuple[Link | None, Receipt | None]:
    """Return the newest decision, and its receipt where there is one."""
    for epoch in reversed(checkpoint.epochs[-2:]):
        chain = checkpoint.log.chain(epoch)
        decided = next(
            (link for link in reversed(chain) if link.kind is LinkKind.COMMIT and link.barrier), None
        )
        if decided is not None:
            return decided, checkpoint.log.receipt(epoch)
    return None, None


def _reads(
    checkpoint: Checkpoint, decided: Link, given: Given, sources: Mapping[str, str]
) -> tuple[dict[str, str], list[sources_left.Read]]:
    """Return how the sources are reached, and the sources."""
    known = checkpoint.sources
    topics = known.topics if known is not None else {}
    found = sources_left.reads_of(decided.barrier, sources, topics, epoch=decided.epoch)
    options = dict(sources)
    for each in found:
        if each.kind.word == sources_left.OF_KAFKA and not each.own(options):
            own = _in_a_sinks_cluster(checkpoint, given, each, topics)
            options |= {f"{each.at}:{name}": text for name, text in own.items() if each.kind.takes(name)}
    return options, found


def _in_a_sinks_cluster(
    checkpoint: Checkpoint, given: Given, read: sources_left.Read, topics: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return how the cluster of a sink is reached, if the topics of a source are there; nothing where none is known."""
    if not read.offset.keys() <= topics.keys():
        return {}
    try:
        with sinks.participants(checkpoint, given) as made:  # they agree to what is sent where
            uses = {name: each.use for name, each in made.items() if each.use is not None}
    except OnceonlyError:
        return {}  # the probe of its target tells
    for name, use in uses.items():
        if BUILT_IN.get(use.sink) != BUILT_IN[KAFKA]:
            continue
        from onceonly.guards.kafka import ids_of

        options = {key.lower(): text for key, text in sinks.options_of(given, name, use).items()}
        try:
            ids = ids_of(Source(KAFKA, options), read.offset)
        except OnceonlyError:
            continue  # as above
        if all(ids.get(topic) in topics[topic] for topic in read.offset):
            return options
    return {}
