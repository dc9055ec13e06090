"""What can be wrong with a Kafka target, asked before the first record. Driver, once a run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee
from onceonly.sinks.kafka.checks import marker_topic
from onceonly.sinks.kafka.checks.topic_ids import spelled_id
from onceonly.sinks.kafka.committer import fence
from onceonly.sinks.kafka.options import TRANSACTION_TIMEOUT_MS
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.records.columns import check_columns
from onceonly.sinks.kafka.records.refusals import limit_of
from onceonly.sinks.kafka.wire.admin import GROUP
from onceonly.sinks.kafka.wire.answers import (
    GROUP_FORBIDDEN,
    INVALID_TIMEOUT,
    INVALID_TOPIC,
    NONE,
    READ,
    TOPIC_FORBIDDEN,
    UNKNOWN_TOPIC,
    WRITE,
    PutOffError,
    is_allowed,
    refuse_forbidden,
)

if TYPE_CHECKING:
    from onceonly.ports import QueryContext
    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.wire.admin import Admin

log = logging.getLogger("onceonly")

_PATIENCE_S = 10.0

Facts = dict[str, str | int]

# Of an internal topic that is not there yet, the setting that says how many brokers its first use needs.
_INTERNAL = {
    "__transaction_state": "transaction.state.log.replication.factor",
    "__consumer_offsets": "offsets.topic.replication.factor",
}
_SETTINGS = ("transaction.max.timeout.ms", "auto.create.topics.enable", *_INTERNAL.values())


def check(admin: Admin, options: KafkaOptions, context: QueryContext) -> Facts:
    """Look at columns, cluster, topics, permissions and time-outs. Idempotent.

    Raises ``ConfigurationError`` that names what to change, ``UnavailableError`` after bounded time.
    """
    check_columns(context.columns, options.topic)
    cluster_id = admin.patiently(_PATIENCE_S, "first connection", lambda: admin.cluster_id)
    facts: Facts = {"cluster_id": cluster_id}
    if options.topic is not None:
        _check_topic(admin, options.topic)
    _tell_ignored(options)
    if options.topic is not None and (limit := _topic_limit(admin, options.topic)) is not None:
        facts["max_message_bytes"] = limit
    if context.guarantee is Guarantee.AT_LEAST_ONCE:
        return facts
    settings = broker_settings(admin, *_SETTINGS)
    _check_internal_topics(admin, settings)
    topic = marker_topic.choose(admin, options)
    _check_topic(admin, topic, holds_markers=True)
    facts["marker_topic"] = topic
    _check_group(admin, marker.group_name(options.prefix, context.query, context.sink, 0))
    facts["transaction_timeout_ms"] = _check_timeout(admin, options, context, settings)
    facts["end_txn_version"] = _end_txn_version(admin)
    return facts


def require_rights(admin: Admin, options: KafkaOptions, context: QueryContext) -> None:
    """See that an epoch may write its rows, and note their marker; make nothing. Operator's process.

    Raises ``ConfigurationError`` that names what to grant, ``UnavailableError`` after bounded time.
    """
    if options.topic is not None:
        _check_topic(admin, options.topic, create=False)
    if options.marker_topic is not None:
        _check_topic(admin, options.marker_topic, holds_markers=True, create=False)
    _check_group(admin, marker.group_name(options.prefix, context.query, context.sink, 0))


def _tell_ignored(options: KafkaOptions) -> None:
    if options.ignored:
        log.warning(
            "Options of Spark's Kafka source have no effect on the sink: %s.", ", ".join(options.ignored)
        )


def _topic_limit(admin: Admin, topic: str) -> int | None:
    """Return ``max.message.bytes`` of a topic; None where this user may not see it."""
    return admin.patiently(_PATIENCE_S, f"settings of topic {topic}", lambda: limit_of(admin, topic))


def _check_internal_topics(admin: Admin, settings: dict[str, str]) -> None:
    """Refuse a cluster that can never make the topics which hold transactions and markers: it has too few brokers.

    Not noticed where this user may not see settings: then nobody answers, for a reason that the brokers' logs tell.
    """

    def attempt() -> Any:  # noqa: ANN401  kafka-python is untyped
        from onceonly.sinks.kafka.wire.requests import metadata

        return admin.send(metadata(_INTERNAL))

    answer = admin.patiently(_PATIENCE_S, "internal topics", attempt)
    absent = {topic.name for topic in answer.topics if topic.error_code == UNKNOWN_TOPIC}
    for name, setting in _INTERNAL.items():
        needed = int(settings.get(setting, 0))
        if name in absent and needed > len(answer.brokers):
            raise ConfigurationError(
                f"Kafka has {len(answer.brokers)} broker(s), and its setting {setting} is {needed}: the topic {name} "
                f"cannot be made, without which there are no transactions.",
                next_step=f"start more brokers, or set {setting}={len(answer.brokers)} (and its min.isr) on all",
            )


def _check_topic(admin: Admin, name: str, *, holds_markers: bool = False, create: bool = True) -> None:
    """Refuse a topic that neither exists nor is created by the broker, or that may not be written.

    One that holds markers must be readable instead: an offset is committed by who may read what it is of.
    """
    of_markers = name if holds_markers else ""

    def attempt(*, create: bool) -> Any:  # noqa: ANN401  kafka-python is untyped
        from onceonly.sinks.kafka.wire.requests import metadata

        topic = admin.send(metadata([name], create=create, operations=True)).topics[0]
        refuse_forbidden(topic.error_code, name, topic=of_markers)
        if topic.error_code not in {NONE, UNKNOWN_TOPIC, INVALID_TOPIC}:
            raise PutOffError(topic.error_code)
        return topic

    # Asked with "create", as Spark's producer would at its first row: the broker's settings decide.
    topic = admin.patiently(_PATIENCE_S, f"topic {name}", lambda: attempt(create=create))
    if topic.error_code == UNKNOWN_TOPIC and create and _creates_topics(admin):

        def appeared() -> Any:  # noqa: ANN401
            found = attempt(create=False)
            if found.error_code == UNKNOWN_TOPIC:
                raise PutOffError(UNKNOWN_TOPIC)
            return found

        topic = admin.patiently(_PATIENCE_S, f"creation of topic {name}", appeared)
    if topic.error_code != NONE:
        wrong = "does not exist, and the broker does not create topics by itself"
        if topic.error_code != UNKNOWN_TOPIC:
            wrong = "is no valid name of a topic"
        raise ConfigurationError(
            f"Topic {name} {wrong}.", next_step=f"create it: kafka-topics.sh --create --topic {name}"
        )
    if not is_allowed(topic.authorized_operations, READ if holds_markers else WRITE):
        refuse_forbidden(TOPIC_FORBIDDEN, name, topic=of_markers)


def topic_id(admin: Admin, name: str) -> str:
    """Return the id that the cluster drew for a topic when it was made.

    Raises ``UnavailableError`` for one that is not there: a broker may be late to know it.
    """

    def attempt() -> str:
        from onceonly.sinks.kafka.wire.requests import metadata

        topic = admin.send(metadata([name])).topics[0]
        refuse_forbidden(topic.error_code, name)
        if topic.error_code != NONE:
            raise PutOffError(topic.error_code)
        return spelled_id(topic)

    return admin.patiently(_PATIENCE_S, f"topic {name}", attempt)


def _creates_topics(admin: Admin) -> bool:
    # Not told without DESCRIBE_CONFIGS; then the time-out tells.
    return broker_settings(admin, *_SETTINGS).get("auto.create.topics.enable", "true") == "true"


def _check_group(admin: Admin, group: str) -> None:
    def attempt() -> Any:  # noqa: ANN401
        from onceonly.sinks.kafka.wire.requests import DescribeGroupsRequest

        request = DescribeGroupsRequest(
            groups=[group], include_authorized_operations=True, min_version=3, max_version=5
        )
        answer = admin.to_coordinator(GROUP, group, request).groups[0]
        refuse_forbidden(answer.error_code, group)
        if answer.error_code != NONE:
            admin.forget(GROUP, group)
            raise PutOffError(answer.error_code)
        return answer

    answer = admin.patiently(_PATIENCE_S, f"group {group}", attempt)
    if not is_allowed(answer.authorized_operations, READ):
        refuse_forbidden(GROUP_FORBIDDEN, group)


def broker_settings(admin: Admin, *names: str) -> dict[str, str]:
    """Read settings of a broker by name; empty where this user may not see them. Raises ``UnavailableError``."""

    def attempt() -> dict[str, str]:
        from onceonly.sinks.kafka.wire.requests import BROKER, configs, metadata

        node = admin.send(metadata()).brokers[0].node_id
        answer = admin.send(configs(BROKER, str(node), names), node)
        return {entry.name: entry.value for result in answer.results for entry in result.configs or ()}

    return admin.patiently(_PATIENCE_S, "settings of a broker", attempt)


def _check_timeout(
    admin: Admin, options: KafkaOptions, context: QueryContext, settings: dict[str, str]
) -> int:
    told = settings.get("transaction.max.timeout.ms")
    broker_max = int(told) if told else None
    ours = options.transaction_timeout_ms
    if ours is None:
        ours = min(TRANSACTION_TIMEOUT_MS, broker_max or TRANSACTION_TIMEOUT_MS)
    # An id of this query that never carries a transaction: what it may do, they may.
    probe = f"{id_prefix(options, context.query, context.sink)}check"
    too_long = broker_max is not None and ours > broker_max
    if too_long or fence(admin, probe, ours) == INVALID_TIMEOUT:
        limit = "its maximum" if broker_max is None else f"its transaction.max.timeout.ms, {broker_max} ms"
        raise ConfigurationError(
            f"The transaction time-out of {ours} ms is more than the broker allows: {limit}.",
            next_step="lower kafka.transaction.timeout.ms, or raise the broker's maximum",
        )
    return ours


def id_prefix(options: KafkaOptions, query: str, sink: str) -> str:
    """Return what every transactional id of a query's sink begins with, and no other's does."""
    return f"{options.prefix}.{marker.part(query)}.{marker.part(sink)}."


def _end_txn_version(admin: Admin) -> int:
    """Choose the version of EndTxn that the handles of this run name.

    5 where the cluster has finalised transaction.version 2, so that the epoch is bumped at commit and a
    paused writer is fenced; mixing versions for one transaction is answered wrongly.
    """

    def attempt() -> int:
        level = admin.client().features().get("transaction.version", 0)
        return 5 if level >= 2 else 3  # noqa: PLR2004  the feature's level

    return admin.patiently(_PATIENCE_S, "features of the cluster", attempt)
