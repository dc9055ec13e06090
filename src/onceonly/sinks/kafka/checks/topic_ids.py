"""The ids that a cluster draws for topics when they are made: one made anew under the same name has another.

The id of the one topic of a sink is a part of its identity. Where rows name their topics, handles carry the ids, and a
start compares those of the newest epoch.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

from onceonly.sinks.kafka.wire.answers import NONE, UNKNOWN_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.sinks.kafka.wire.admin import Admin

_PATIENCE_S = 10.0
TOPICS_MAX = 64
"""The ids of how many topics a handle has; of more, it has none. A link holds all handles of its epoch."""


def spelled_id(topic: Any) -> str:  # noqa: ANN401  kafka-python is untyped
    """Return a topic's id as Kafka's own tools show it. Pure."""
    return urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")


def spell(ids: Mapping[str, str]) -> str:
    """Spell topics and their ids, for ``Prepared.topic_ids``. Pure."""
    return ";".join(f"{name}={ids[name]}" for name in sorted(ids)) if len(ids) <= TOPICS_MAX else ""


def read(text: str) -> dict[str, str]:
    """Return what ``spell`` has spelled. Pure."""
    return dict(entry.split("=", 1) for entry in text.split(";") if entry)


def changed(admin: Admin, ids: Mapping[str, str]) -> list[str]:
    """Name the topics that have other ids by now, or are not there. Driver; only looks.

    One that may not be looked at is left out. Raises ``UnavailableError``.
    """

    def attempt() -> list[str]:
        from onceonly.sinks.kafka.wire.requests import metadata

        topics = admin.send(metadata(sorted(ids))).topics
        gone = [each.name for each in topics if each.error_code == UNKNOWN_TOPIC]
        there = [each for each in topics if each.error_code == NONE]
        return sorted([*gone, *(each.name for each in there if spelled_id(each) != ids[each.name])])

    return admin.patiently(_PATIENCE_S, "ids of topics", attempt) if ids else []
