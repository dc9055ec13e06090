"""What a campaign's queries read instead of Kafka: made for it, fed by it, killed by its faults, read back by itself.

One module for each system. Campaign's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceonly_proof.campaign.sources.given import Collection, Files
from onceonly_proof.campaign.sources.http import Http, Live, Socket
from onceonly_proof.campaign.sources.kinesis import Kinesis
from onceonly_proof.campaign.sources.port import Flow, Place, Source
from onceonly_proof.campaign.sources.rabbitmq import Nameless, Queue, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["SOURCES", "Flow", "Place", "Source"]

SOURCES: Final[Mapping[str, Callable[[Path], Source]]] = {
    "kinesis": Kinesis,
    "rabbitmq": Queue,
    "rabbitmq-no-ids": Nameless,
    "rabbitmq-stream": Stream,
    "http": Http,
    "http-no-resume": Live,
    "socket": Socket,
    "collection": Collection,
    "files": Files,
}
"""By the names that the command takes."""
