"""The topic that markers name: one of their own, empty for ever, so that no monitor takes a marker for a reader's lag.

A marker is an offset of a group, and monitors compare offsets with the end of their partition. Of a partition that is
empty both are 0. Driver, once a run.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.sinks.kafka.options import MARKER_OPTION
from onceonly.sinks.kafka.wire.answers import (
    NONE,
    READ,
    TOPIC_EXISTS,
    UNKNOWN_TOPIC,
    Meaning,
    PutOffError,
    is_allowed,
    meaning,
)

if TYPE_CHECKING:
    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.wire.admin import Admin

log = logging.getLogger("onceonly")

_PATIENCE_S = 10.0
_CREATE_MS = 5_000
_LENGTH_MAX = 249


def name_of(prefix: str) -> str:
    """Return the name of the markers' own topic, of what a topic's name may hold."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", prefix)[: _LENGTH_MAX - len(".markers")] + ".markers"


def choose(admin: Admin, options: KafkaOptions) -> str:
    """Return the topic that markers will name: the user's, or one of their own, which is made where it is not there.

    Where it can neither be made nor be read, the topic of the rows, as before there was one, with a warning. Raises
    ``ConfigurationError`` where rows carry their topics and there is none then, ``UnavailableError``.
    """
    if options.marker_is_given and options.marker_topic is not None:
        return options.marker_topic
    name = name_of(options.prefix)
    why = admin.patiently(_PATIENCE_S, f"topic {name}", lambda: _ready(admin, name))
    if not why:
        return name
    advice = f"kafka-topics.sh --create --topic {name} --partitions 1, and READ and DESCRIBE on it"
    if options.topic is None:
        raise ConfigurationError(
            f"The markers' topic {name} cannot be had ({why}), and as rows carry their topics, there is no other one.",
            next_step=f"{advice}; or give {MARKER_OPTION}: any topic that this sink may read",
        )
    log.warning(
        "The markers' topic %s cannot be had (%s). Markers name topic %s instead, and monitors of lag show groups %s.* "
        "as lagging there: exclude them, or %s.",
        name, why, options.topic, options.prefix, advice,
    )  # fmt: skip
    return options.topic


def _ready(admin: Admin, name: str) -> str:
    """See that the topic is there, and may be read; make it if it is not. Gives why it cannot be had."""
    from onceonly.sinks.kafka.wire.requests import metadata

    # Not to be created by that: a broker would give it its usual number of partitions.
    topic = admin.send(metadata([name], operations=True)).topics[0]
    if topic.error_code == UNKNOWN_TOPIC:
        code, message = _create(admin, name)
        if code not in {NONE, TOPIC_EXISTS}:  # somebody was quicker
            if meaning(code) is Meaning.LATER:
                raise PutOffError(code)
            return f"it does not exist, and to make it is refused: error {code}" + (
                f", {message}" if message else ""
            )
        raise PutOffError(UNKNOWN_TOPIC, "a topic that was just made")
    if meaning(topic.error_code) is Meaning.LATER:
        raise PutOffError(topic.error_code)
    if topic.error_code != NONE:
        return f"error {topic.error_code}"
    return "" if is_allowed(topic.authorized_operations, READ) else "it may not be read"


def _create(admin: Admin, name: str) -> tuple[int, str]:
    from onceonly.sinks.kafka.wire.requests import CreateTopicsRequest, metadata

    wanted = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=-1, assignments=[], configs=[]
    )
    controller = admin.send(metadata()).controller_id
    request = CreateTopicsRequest(
        topics=[wanted], timeout_ms=_CREATE_MS, validate_only=False, min_version=4, max_version=5
    )
    answer = admin.send(request, controller if controller >= 0 else None).topics[0]
    return answer.error_code, answer.error_message or ""
