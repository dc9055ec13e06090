"""What ``onceonly doctor --for`` asks of Kinesis: the stream, rights and retention, without changing anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly.families.kinesis import RefusedCallError, Stream
from onceonly.operations.probes import Sick
from onceonly.sources.kinesis.options import WHO, SourceOptions
from onceonly.sources.kinesis.positions import TRIM, Position
from onceonly.sources.kinesis.shards import Shard

if TYPE_CHECKING:
    from onceonly.operations.planned_job import PlannedJob
    from onceonly.settings.query import SinkSettings

_PATIENCE_S = 8.0
_HOUR_S = 3600
_READ_FROM = frozenset({"ACTIVE", "UPDATING"})


def readable(job: PlannedJob) -> None:
    """See that the stream is there, and that its shards and records may be read. Raises ``ConfigurationError``."""
    stream = _opened(_options(job))
    status = _summary(stream).get("StreamStatus", "ACTIVE")
    if status not in _READ_FROM:
        raise Sick(
            f"the stream {stream.options.where} is {status}, and cannot be read",
            "wait until it is ACTIVE, or make it anew",
        )
    for shard in stream.ask("list_shards")["Shards"][:1]:
        Shard(stream, shard["ShardId"], Position(TRIM)).read(1)


def kept(job: PlannedJob) -> None:
    """See that the stream keeps its records for as long as the job may be down."""
    if job.outage_s is None:
        return
    told = keeps_s(_options(job))
    if told is not None and told[1] < job.outage_s:
        raise Sick(
            f"{told[0]} keeps records for {told[1] / _HOUR_S:g} h, and the job may be down for {job.outage_s:g} s",
            "give it a longer retention (aws kinesis increase-stream-retention-period --retention-period-hours "
            f"{-int(-job.outage_s // _HOUR_S)})",
        )


def keeps_s(options: SourceOptions) -> tuple[str, float] | None:
    """Name the stream, and say for how many seconds it keeps its records; None where that is not told."""
    stream = _opened(options)
    hours = _summary(stream).get("RetentionPeriodHours")
    return None if hours is None else (f"the stream {stream.options.where}", float(hours) * _HOUR_S)


def no_loop(job: PlannedJob, sink: SinkSettings) -> None:
    """See that the job does not read what it writes."""
    own, target = _options(job).stream, sink.options
    if (target.get("stream"), target.get("region"), target.get("endpoint")) == (
        own.stream,
        own.region,
        own.endpoint,
    ):
        raise Sick(
            f"the job reads the stream {own.where} and writes it: its own rows come back for ever",
            "set stream to another one",
        )


def _options(job: PlannedJob) -> SourceOptions:
    return SourceOptions.of(job.source.options if job.source is not None else {})


def _opened(options: SourceOptions) -> Stream:
    # A probe has less time than a query.
    return Stream(replace(options.stream, timeout_s=min(options.stream.timeout_s, _PATIENCE_S)), WHO)


def _summary(stream: Stream) -> dict[str, Any]:
    """Return what the service says of a stream; nothing where this user may not ask, which the source does without."""
    try:
        answer = stream.ask("describe_stream_summary", own=("AccessDeniedException",))
    except RefusedCallError:
        return {}
    found: dict[str, Any] = answer["StreamDescriptionSummary"]
    return found
