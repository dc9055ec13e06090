"""The import of confluent-kafka, which is an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import required

if TYPE_CHECKING:
    from types import ModuleType


def import_confluent() -> ModuleType:
    """Import confluent-kafka, or say how to install it."""
    with required("the sink kafka needs the package confluent-kafka", extra="kafka"):
        import confluent_kafka
    return confluent_kafka
