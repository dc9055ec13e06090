"""Offsets of ours in Spark's checkpoint, which say of which version they are. Driver; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


def read_offset(kind: type[T], given: Mapping[str, Any], *, version: int, of: str, source: str) -> T:
    """Read an offset of a checkpoint; ``version`` is the newest that is known, ``of`` what and ``source`` whose it is.

    Raises ``ConfigurationError`` for a newer one, and for one of something else.
    """
    try:
        if int(given["version"]) > version:
            raise ConfigurationError(
                f"the checkpoint's offset of {of} is of version {given['version']}, and this onceonly knows {version}",
                next_step="use the newer onceonly that wrote it",
            )
        return decoder(kind).decode(msgspec.json.encode(given))
    except (KeyError, TypeError, ValueError) as error:  # msgspec's own is a ValueError
        raise ConfigurationError(
            f"the checkpoint's offset is none of {source}: {error}",
            next_step="start on a new checkpoint, or with the source that wrote it",
        ) from error
