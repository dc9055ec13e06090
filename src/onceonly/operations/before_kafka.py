"""What ``onceonly doctor --for`` asks of Kafka: rights, retention and time-outs, without changing anything."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.guards.kafka import assigned, refuse_topic
from onceonly.guards.source import KAFKA
from onceonly.operations.probes import Sick
from onceonly.sinks.kafka.checks.ageing import REFUSED_FROM
from onceonly.sinks.kafka.checks.target import broker_settings
from onceonly.sinks.kafka.options import TRANSACTION_TIMEOUT_MS, KafkaOptions
from onceonly.sinks.kafka.records.refusals import topic_setting
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly.sinks.kafka.wire.answers import (
    NONE,
    READ,
    TOPIC_FORBIDDEN,
    UNKNOWN_TOPIC,
    PutOffError,
    is_allowed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onceonly.operations.planned_job import PlannedJob
    from onceonly.settings.query import Settings, SinkSettings

_PATIENCE_S = 8.0
MAX, OFFSETS = "transaction.max.timeout.ms", "offsets.retention.minutes"
TIMEOUT = "kafka.transaction.timeout.ms"


def readable(job: PlannedJob) -> None:
    """See that the topics of the source are there and may be read."""
    with _source(job) as (admin, topics):
        for topic in topics:
            found = _look(admin, topic)
            refuse_topic(found.error_code, topic)
            if found.error_code == UNKNOWN_TOPIC:
                raise Sick(
                    f"the source reads the topic {topic}, which is not there",
                    f"create it (kafka-topics.sh --create --topic {topic}), or name the right cluster",
                )
            if not is_allowed(found.authorized_operations, READ):
                refuse_topic(TOPIC_FORBIDDEN, topic)


def kept(job: PlannedJob) -> None:
    """See that retention leaves the source's rows for as long as the job may be down."""
    if job.outage_s is None:
        return
    with _source(job) as (admin, topics):
        for topic in topics:
            told = admin.patiently(
                _PATIENCE_S,
                f"settings of topic {topic}",
                lambda: topic_setting(admin, topic, "retention.ms"),  # noqa: B023
            )
            if told and 0 <= int(told) < 1000 * job.outage_s:
                raise Sick(
                    f"the topic {topic} keeps rows for {int(told) / 1000:g} s, and the job may be down for "
                    f"{job.outage_s:g} s",
                    f"give it retention.ms={int(1000 * job.outage_s)} or more (kafka-configs.sh --alter)",
                )


def no_loop(job: PlannedJob, sink: SinkSettings) -> None:
    """See that the job does not read what it writes."""
    target = sink.options.get("topic")
    if "kafka.bootstrap.servers" not in sink.options or target not in _topics(job):
        return
    with _source(job) as (source, _), closing(Admin(KafkaOptions.parse(sink.options))) as admin:
        reads, writes = (
            each.patiently(_PATIENCE_S, "cluster id", lambda: each.cluster_id)  # noqa: B023
            for each in (source, admin)
        )
    if reads == writes:
        raise Sick(
            f"the job reads the topic {target} and writes it: its own rows come back for ever",
            "set topic to another one",
        )


def transactions(job: PlannedJob, settings: Settings) -> None:
    """See that an epoch has time to be decided before the broker drops its transactions.

    A time-out above the broker's maximum is told by the sink's own check.
    """
    ours, most = timeouts_of(settings.sink.options)
    limit_s = settings.query.epoch_timeout_s if settings.query is not None else None
    for what, seconds in (("onceonly.epoch.timeout", limit_s), ("the trigger", job.trigger_s)):
        if seconds is not None and 1000 * seconds > REFUSED_FROM * ours:
            raise Sick(
                f"an epoch may take {seconds:g} s by {what}, and one older than {REFUSED_FROM * ours / 1000:g} s is "
                f"not decided: the broker drops its transactions at {ours / 1000:g} s",
                longer(int(1000 * seconds / REFUSED_FROM) + 1, most),
            )


def outage(job: PlannedJob, sink: SinkSettings) -> None:
    """See that what is decided outlives the longest outage; else its rows are written again, later."""
    if job.outage_s is None:
        return
    ours, most = timeouts_of(sink.options)
    if 1000 * job.outage_s > ours:
        raise Sick(
            f"the job may be down for {job.outage_s:g} s, and the broker drops what is decided and not yet committed "
            f"at {ours / 1000:g} s: the next start would have to write those rows again",
            longer(int(1000 * job.outage_s), most),
        )


def markers(job: PlannedJob, sink: SinkSettings) -> None:
    """See that what tells the outcome of a transaction outlives the longest outage."""
    if job.outage_s is None:
        return
    kept_s = markers_kept_s(sink.options)
    if kept_s is not None and kept_s < job.outage_s:
        raise Sick(
            f"the broker forgets the markers of transactions after {kept_s:g} s ({OFFSETS}), and the "
            f"job may be down for {job.outage_s:g} s: nobody could tell then what was committed",
            f"set {OFFSETS}={int(job.outage_s / 60) + 1} on all brokers",
        )


def group(job: PlannedJob, name: str) -> None:
    """See that the group of ``onceonly.lag.group`` is nobody else's."""
    from onceonly.guards.positions import Group, refuse_strange

    if job.source is None or job.source.format != KAFKA:
        raise Sick(
            f"onceonly.lag.group is {name}, and the source that is described is not Kafka's",
            "leave onceonly.lag.group out, or describe the source",
        )
    with closing(Group(name, job.source)) as found:
        members, offsets = found.members(), found.read()
    if members:
        raise Sick(
            f"the group {name} has members ({members}), and Kafka takes its offsets from them alone",
            "name a group of its own in onceonly.lag.group, or stop those consumers",
        )
    refuse_strange(offsets)


def longer(needed_ms: int, most: int | None) -> str:
    """Say how transactions are given so much time. Pure."""
    if most is not None and needed_ms > most:
        return f"raise {MAX} of the brokers to {needed_ms}, and set {TIMEOUT}={needed_ms}"
    return f"set {TIMEOUT}={needed_ms}"


def timeouts_of(sink: Mapping[str, str]) -> tuple[int, int | None]:
    """Return the time-out of transactions, and the most that the broker allows, None where it does not tell."""
    told = _settings(sink).get(MAX)
    most = int(told) if told else None
    given = KafkaOptions.parse(sink).transaction_timeout_ms
    return min(TRANSACTION_TIMEOUT_MS, most or TRANSACTION_TIMEOUT_MS) if given is None else given, most


def markers_kept_s(sink: Mapping[str, str]) -> float | None:
    """Return for how long the broker keeps markers that nobody renews; None where it does not tell."""
    told = _settings(sink).get(OFFSETS)
    return 60 * float(told) if told else None


def _settings(sink: Mapping[str, str]) -> Mapping[str, str]:
    with closing(Admin(KafkaOptions.parse(sink))) as admin:
        return broker_settings(admin, MAX, OFFSETS)


def _topics(job: PlannedJob) -> list[str]:
    """Return the topics that the source names; none where it names a pattern."""
    if job.source is None:
        return []
    if "assign" in job.source.options:
        return assigned(job.source.options["assign"])
    return [each.strip() for each in job.source.options.get("subscribe", "").split(",") if each.strip()]


@contextmanager
def _source(job: PlannedJob) -> Iterator[tuple[Admin, list[str]]]:
    options = job.source.options if job.source is not None else {}
    if not {"subscribe", "assign", "subscribepattern"} & options.keys():
        raise ConfigurationError(
            "the Kafka source does not say which topics it reads", next_step="set subscribe on the source"
        )
    with closing(Admin(KafkaOptions.of_source(options))) as admin:
        yield admin, _topics(job)


def _look(admin: Admin, topic: str) -> Any:  # noqa: ANN401  kafka-python is untyped
    from onceonly.sinks.kafka.wire.requests import metadata

    def attempt() -> Any:  # noqa: ANN401
        [found] = admin.send(metadata([topic], operations=True)).topics
        if found.error_code not in {NONE, UNKNOWN_TOPIC, TOPIC_FORBIDDEN}:
            raise PutOffError(found.error_code, f"topic {topic}")
        return found

    return admin.patiently(_PATIENCE_S, f"topic {topic}", attempt)
