"""What can be wrong with a Kafka target, asked before the first record. Driver, once a run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee
from onceonly.sinks.kafka import marker, marker_topic
from onceonly.sinks.kafka.checks.topic_ids import spelled_id, topics_request
from onceonly.sinks.kafka.committer import INVALID_TIMEOUT, fence
from onceonly.sinks.kafka.options import TRANSACTION_TIMEOUT_MS
from onceonly.sinks.kafka.records.columns import check_columns
from onceonly.sinks.kafka.records.refusals import limit_of
from onceonly.sinks.kafka.wire.admin import GROUP, NONE, UNKNOWN_TOPIC, PutOffError, refuse_forbidden
from onceonly.sinks.kafka.wire.answers import TOPIC_FORBIDDEN

if TYPE_CHECKING:
    from onceonly.ports import QueryContext
    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.wire.admin import Admin

log = logging.getLogger("onceonly")

_PATIENCE_S = 10.0
# Bits of "authorized operations": org.apache.kafka.common.acl.AclOperation.
_READ, _WRITE = 3, 4
_UNTOLD = -(2**31)  # the broker did not say

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
    settings = _broker_settings(admin)
    _check_internal_topics(admin, settings)
    topic = marker_topic.choose(admin, options)
    _check_topic(admin, topic, holds_markers=True)
    facts["marker_topic"] = topic
    _check_group(admin, marker.group_name(options.prefix, context.query, context.sink, 0))
    facts["transaction_timeout_ms"] = _check_timeout(admin, options, context, settings)
    facts["end_txn_version"] = _end_txn_version(admin)
    return facts


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
        from onceonly.sinks.kafka.wire.requests import MetadataRequest

        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in _INTERNAL]
        return admin.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False, max_version=9))

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


def _check_topic(admin: Admin, name: str, *, holds_markers: bool = False) -> None:
    """Refuse a topic that neither exists nor is created by the broker, or that may not be written.

    One that holds markers must be readable instead: an offset is committed by who may read what it is of.
    """

    def attempt(*, create: bool) -> Any:  # noqa: ANN401  kafka-python is untyped
        from onceonly.sinks.kafka.wire.requests import MetadataRequest

        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name)],
            allow_auto_topic_creation=create,
            include_topic_authorized_operations=True,
            min_version=8,
            max_version=9,
        )
        topic = admin.send(request).topics[0]
        refuse_forbidden(topic.error_code, name, topic=name if holds_markers else "")
        if topic.error_code not in {NONE, UNKNOWN_TOPIC, 17}:
            raise PutOffError(topic.error_code)
        return topic

    # Asked with "create", as Spark's producer would at its first row: the broker's settings decide.
    topic = admin.patiently(_PATIENCE_S, f"topic {name}", lambda: attempt(create=True))
    if topic.error_code == UNKNOWN_TOPIC and _creates_topics(admin):

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
    if holds_markers:
        _check_operation(topic.authorized_operations, _READ, TOPIC_FORBIDDEN, name, topic=name)
    else:
        _check_operation(topic.authorized_operations, _WRITE, TOPIC_FORBIDDEN, name)


def topic_id(admin: Admin, name: str) -> str:
    """Return the id that the cluster drew for a topic when it was made.

    Raises ``UnavailableError`` for one that is not there: a broker may be late to know it.
    """

    def attempt() -> str:
        topic = admin.send(topics_request([name], create=False)).topics[0]
        refuse_forbidden(topic.error_code, name)
        if topic.error_code != NONE:
            raise PutOffError(topic.error_code)
        return spelled_id(topic)

    return admin.patiently(_PATIENCE_S, f"topic {name}", attempt)


def _creates_topics(admin: Admin) -> bool:
    # Not told without DESCRIBE_CONFIGS; then the time-out tells.
    return _broker_settings(admin).get("auto.create.topics.enable", "true") == "true"


def _check_operation(operations: Any, operation: int, code: int, thing: str, *, topic: str = "") -> None:  # noqa: ANN401
    """Refuse if the broker says which operations are allowed, and this one is not among them."""
    if isinstance(operations, int):
        told = operations != _UNTOLD
        allowed = bool(operations >> operation & 1)
    else:
        told, allowed = bool(operations), operation in (operations or ())
    if told and not allowed:
        refuse_forbidden(code, thing, topic=topic)


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
    _check_operation(answer.authorized_operations, _READ, 30, group)


def _broker_settings(admin: Admin) -> dict[str, str]:
    """Read some settings of a broker; empty where this user may not see them."""

    def attempt() -> dict[str, str]:
        from onceonly.sinks.kafka.wire.requests import DescribeConfigsRequest, MetadataRequest

        node = admin.send(MetadataRequest(topics=[], max_version=9)).brokers[0].node_id
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=4,  # ConfigResource.Type.BROKER
                    resource_name=str(node),
                    configuration_keys=list(_SETTINGS),
                )
            ],
            include_synonyms=False,
        )
        answer = admin.send(request, node)
        return {entry.name: entry.value for result in answer.results for entry in result.configs}

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
