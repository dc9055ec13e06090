"""The import of confluent-kafka, which is an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import SetupError

if TYPE_CHECKING:
    from types import ModuleType


def import_confluent() -> ModuleType:
    """Import confluent-kafka, or say how to install it."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise SetupError(
            "The Kafka sink needs confluent-kafka, which is not installed.",
            next_step="pip install 'onceonly[kafka]' on driver and executors",
        ) from error
    return confluent_kafka
