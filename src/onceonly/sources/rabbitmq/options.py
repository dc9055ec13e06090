"""The options of ``onceonly.rabbitmq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.families import rabbitmq
from onceonly.families.rabbitmq import text_of
from onceonly.options import Option, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

DECLARED: tuple[Option, ...] = (
    rabbitmq.URI,
    Option(name="queue", doc="The queue, classic or quorum. It is never made.", required=True),
    Option(
        name="id",
        doc="What names a message for good, as its publisher sets it: its property `messageId`, a header "
        "`header:NAME`, or `none`.",
        default="messageId",
    ),
    Option(
        name="deduplicate",
        doc="Which messages are left out whose id is remembered: `all`, also those that were published twice; or only "
        "those that the server says were `redelivered`.",
        default="all",
        choices=("all", "redelivered"),
    ),
    Option(
        name="prefetch",
        doc="How many messages may be on their way that are not acknowledged, 1 to 65535.",
        default="5000",
        read=whole,
        choices=range(1, 65_536),
    ),
)


class Named:
    """Where the id of a message is. Raises ``ConfigurationError`` for a place that there is none of."""

    def __init__(self, text: str) -> None:
        kind, _, self._header = text.partition(":")
        self._kind = kind.strip().lower()
        self._header = self._header.strip()
        if self._kind not in {"messageid", "header", "none"} or bool(self._header) != (
            self._kind == "header"
        ):
            raise ConfigurationError(
                f"The option id of onceonly.rabbitmq is {text!r}, and must be messageId, header:NAME or none.",
                next_step="messageId is the property that publishers set",
            )

    def __bool__(self) -> bool:
        return self._kind != "none"

    @property
    def text(self) -> str:
        """The place as the option says it, however that was written."""
        return {"messageid": "messageId", "none": "none"}.get(self._kind, f"header:{self._header}")

    def __str__(self) -> str:
        return f"header {self._header}" if self._header else "message id"

    def of(self, message_id: str | bytes | None, headers: Mapping[str, Any] | None) -> str | None:
        """Return the id of a message; None where it has none, or an empty one."""
        if self._kind == "none":
            return None
        found = message_id if self._kind == "messageid" else (headers or {}).get(self._header)
        if isinstance(found, bytes | bytearray):
            return found.decode(errors="backslashreplace") or None  # no two of them are the same text
        return None if found is None else text_of(found) or None
