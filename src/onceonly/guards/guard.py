"""Looks at a query's sources before an epoch is read: once a start, and so before a replay. No Spark.

What is wrong is said by name. Where rows would be lost, or others read than the checkpoint stands on, the query stops
before anything is read or written, unless its user has chosen to go on.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from onceonly import events, offsets
from onceonly.checkpoint.inputs import SparkInputs
from onceonly.errors import ConfigurationError, LogError, SetupError, SourceChangedError, UnavailableError
from onceonly.guards import folders, known
from onceonly.guards.known import Known
from onceonly.guards.promises import FEEDS, end_to_end, named
from onceonly.guards.receivers import received
from onceonly.guards.source import FILES, KAFKA, Finding, Source, merged
from onceonly.model import Guarantee
from onceonly.settings.query import SOURCE_CHANGED, SOURCE_FORMAT, SOURCE_OPTION, GoOn
from onceonly.words import are, n

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from onceonly.checkpoint.files import CheckpointFiles
    from onceonly.guards.kafka import Standing
    from onceonly.settings.query import QuerySettings

log = logging.getLogger("onceonly")

_NOT_SEEN = (
    "what its sources are is not seen here, so nothing of them is watched: topics made anew, retention, rows of "
    "aborted transactions, files that are gone or changed"
)
_TO_WATCH = (
    f"give {SOURCE_FORMAT} and {SOURCE_OPTION}NAME, or a classic session that has called onceonly.register"
)


@dataclass(slots=True)
class _Seen:
    """What a look has found."""

    findings: list[Finding]
    topics: dict[str, tuple[str, ...]]
    since: dict[str, int]


class Guard:
    """The guard of one query's sources. Planner or driver; ``look`` at each start.

    ``planned`` gives the sources of Spark's plan, None where nobody can look at it. ``start`` names the start, of which
    each planner process has a guard: only the first one looks.
    """

    def __init__(
        self,
        query: str,
        checkpoint: CheckpointFiles,
        settings: QuerySettings,
        planned: Callable[[], Sequence[Source] | None],
        start: str = "",
    ) -> None:
        self._query = query
        self._checkpoint = checkpoint
        self._settings = settings
        self._planned = planned
        self._start = start

    def look(self, epoch: int, guarantees: Collection[Guarantee]) -> None:
        """Look at all sources, tell what is wrong, and keep what was found out.

        Raises ``SourceChangedError`` where rows would be lost, ``UnavailableError`` where a source that was watched
        before cannot be asked now.
        """
        before = self._before(epoch)
        if self._start and before is not None and before.start == self._start:
            return
        sources = merged(self._planned(), dict(self._settings.source), self._settings.source_format)
        if sources is None:
            self._tell(epoch, Finding(_NOT_SEEN, next_step=_TO_WATCH))
            if self._start:
                known.write(self._checkpoint, msgspec.structs.replace(before or Known(), start=self._start))
            return
        sources = self._received(sources, epoch)
        seen = self._see(sources, epoch, before or Known())
        losing = [each for each in seen.findings if each.stops]
        for finding in seen.findings:
            if not finding.stops:
                self._tell(epoch, finding)
        # Who takes rows at most once has said that they may be lost.
        goes_on = self._settings.source_changed is GoOn.GO_ON or set(guarantees) == {Guarantee.AT_MOST_ONCE}
        if losing and not goes_on:
            raise self._error(epoch, losing)
        for finding in losing:
            self._tell(epoch, replace(finding, what=f"{finding.what}. It goes on, as it was told to"))
        promise = end_to_end(sources, guarantees)
        self._say(sources, promise, guarantees)
        now = Known(
            formats=tuple(named(each) for each in sources),
            promise=promise,
            topics=seen.topics,
            since=seen.since,
            start=self._start,
        )
        if now != before:
            known.write(self._checkpoint, now)

    def _received(self, sources: Sequence[Source], epoch: int) -> tuple[Source, ...]:
        """Return the sources as their receivers promise of what is not read yet."""
        found: list[Source] = []
        has_feeds = any(each.format in FEEDS for each in sources)
        starts = SparkInputs(self._checkpoint).starts(epoch).values() if has_feeds else ()
        for each in sources:
            promised, finding = received(each, starts)
            found += promised
            if finding is not None:
                self._tell(epoch, finding)
        return tuple(found)

    def _before(self, epoch: int) -> Known | None:
        try:
            return known.read(self._checkpoint)
        except LogError as error:
            if self._settings.source_changed is GoOn.STOP:
                raise
            self._tell(epoch, Finding(f"{error.what}. It is found out anew"))
            return None

    def _see(self, sources: Sequence[Source], epoch: int, before: Known) -> _Seen:
        seen = _Seen([], dict(before.topics), dict(before.since))
        watched = [each for each in sources if each.format in {KAFKA, FILES}]
        if not watched:
            return seen
        text = self._checkpoint.text(f"offsets/{epoch}") or ""
        ends = offsets.lines(text)
        inputs = SparkInputs(self._checkpoint)
        self._see_topics(watched, ends, epoch, seen, inputs)
        self._see_files(watched, epoch, seen, inputs)
        return seen

    # --- Kafka --------------------------------------------------------------------------------------------

    def _see_topics(
        self,
        sources: Sequence[Source],
        ends: Sequence[tuple[str, str]],
        epoch: int,
        seen: _Seen,
        inputs: SparkInputs,
    ) -> None:
        of_kafka = [each for each in sources if each.format == KAFKA]
        if not of_kafka:
            return
        # A query of other sources starts without the Kafka sink's client.
        from onceonly.guards import kafka

        read = {name: found for name, end in ends if (found := kafka.offsets_of(end)) is not None}
        if not read:
            return
        before = inputs.starts(epoch)
        now: dict[str, tuple[str, ...]] = {}
        for name, end in read.items():
            starts = kafka.offsets_of(before.get(name, "")) or {}
            if starts:
                _forget_left_out(seen, end.keys() - starts.keys(), epoch)
            for topic, topic_id in self._look(of_kafka, kafka.Standing(end, starts), epoch, seen).items():
                now[topic] = tuple(dict.fromkeys((*now.get(topic, ()), topic_id)))
        # In place of those before: the id of one that was made anew is good no more, nor of one that is not read.
        ends_of_all = set(chain.from_iterable(read.values()))
        seen.topics = {topic: ids for topic, ids in seen.topics.items() if topic in ends_of_all} | now
        seen.since = {topic: seen.since.get(topic, epoch) for topic in seen.topics}

    def _look(self, sources: Sequence[Source], standing: Standing, epoch: int, seen: _Seen) -> dict[str, str]:
        """Look at the topics of one source; return their ids, none where nobody can look."""
        from onceonly.guards import kafka

        unwatched = f"The topics {', '.join(sorted(standing.ends))} are not watched"
        source = reader_of(sources, standing.ends)
        if source is None:
            seen.findings.append(Finding(f"{unwatched}: sources of several clusters may read them"))
            return {}
        try:
            ids, findings = kafka.look(source, standing, seen.topics, epoch=epoch)
        except (ConfigurationError, SetupError) as error:
            login = f"{error.next_step}; or say with {SOURCE_OPTION}kafka.NAME how Python logs in"
            seen.findings.append(Finding(f"{unwatched}: {error.what}", next_step=login))
            return {}
        except UnavailableError as error:
            was_watched = seen.topics.keys() & standing.ends.keys()
            if was_watched and self._settings.source_changed is GoOn.STOP:
                raise
            seen.findings.append(Finding(f"{unwatched}: {error.what}"))
            return {}
        seen.findings += findings
        return ids

    # --- files --------------------------------------------------------------------------------------------

    def _see_files(self, sources: Sequence[Source], epoch: int, seen: _Seen, inputs: SparkInputs) -> None:
        of_files = [each for each in sources if each.format == FILES]
        if not of_files:
            return
        listed = list(chain.from_iterable(map(folders.entries, inputs.lists(epoch))))
        findings, elsewhere = folders.changed(listed, epoch=epoch, cleans=folders.cleans(of_files))
        seen.findings += findings
        if elsewhere:
            files = f"{n(elsewhere, 'file')} that chk-{epoch} reads {are(elsewhere)} not watched"
            seen.findings.append(Finding(f"{files}: on a store, or not to be seen"))
        for each in of_files:
            noted = chain.from_iterable(map(folders.entries, inputs.all_lists()))
            seen.findings += folders.ages(each, noted)

    # --- telling ------------------------------------------------------------------------------------------

    def _tell(self, epoch: int, finding: Finding) -> None:
        more = f" Next: {finding.next_step}." if finding.next_step else ""
        log.warning("Query %s, chk-%s: %s.%s", self._query, epoch, finding.what, more)
        events.record("source.finding", actor="guard", query=self._query, epoch=epoch, message=finding.what)

    def _say(self, sources: Sequence[Source], promise: str, guarantees: Collection[Guarantee]) -> None:
        asked = {each.value for each in guarantees}
        # What the sinks were asked for is no news.
        level = logging.INFO if {promise} == asked else logging.WARNING
        of = ", ".join(sorted({named(each) for each in sources})) or "no source"
        log.log(
            level,
            "Query %s: %s from end to end (source: %s; sinks: %s).",
            self._query, promise, of, ", ".join(sorted(asked)),
        )  # fmt: skip

    def _error(self, epoch: int, findings: Sequence[Finding]) -> SourceChangedError:
        what = ". ".join(each.what for each in findings)
        steps = "; ".join(dict.fromkeys(each.next_step for each in findings))
        return SourceChangedError(
            f"Query {self._query}, chk-{epoch}: {what}",
            next_step=f"{steps}. To go on as it is, start once with {SOURCE_CHANGED}={GoOn.GO_ON.value}",
        )


def _forget_left_out(seen: _Seen, begun: Collection[str], epoch: int) -> None:
    """Forget topics that begin in this epoch and were seen in one before: meanwhile they were left out."""
    for topic in begun:
        if seen.since.get(topic) != epoch:
            seen.topics.pop(topic, None)
            seen.since.pop(topic, None)


def reader_of(sources: Sequence[Source], ends: Collection[str]) -> Source | None:
    """Return the source that reads these topics; None where several of different clusters may.

    Those of one cluster, too, may differ in what else they say: who logs in, and which rows are read.
    """
    named_by = [each for each in sources if all(_reads(each, topic) for topic in ends)]
    for some in (named_by, sources):
        if len({_cluster(each) for each in some}) == 1:
            return some[0]
    return None


def _cluster(source: Source) -> str:
    return source.options.get("kafka.bootstrap.servers", "")


def _reads(source: Source, topic: str) -> bool:
    """Say whether a source names a topic, as far as that can be seen."""
    if "assign" in source.options:
        from onceonly.guards import kafka

        return topic in kafka.assigned(source.options["assign"])
    if "subscribepattern" in source.options:
        try:
            return re.fullmatch(source.options["subscribepattern"], topic) is not None
        except re.error:  # what Java alone knows
            return False
    return topic in {each.strip() for each in source.options.get("subscribe", "").split(",")}
