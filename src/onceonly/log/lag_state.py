"""How the group that shows a query's positions is doing, for people: ``onceonly/lag.json``.

Best effort: written by the driver where something has changed, not synced for anybody, and may be removed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.errors import OnceonlyError

if TYPE_CHECKING:
    from onceonly.stores.port import RewritableStore

NAME: Final = "lag.json"


class LagState(msgspec.Struct, frozen=True, kw_only=True):
    """``told`` says why nothing is committed to the group, empty where all is well; ``since`` is when that began."""

    group: str
    told: str = ""
    next_step: str = ""
    since: str = ""


def read(store: RewritableStore) -> LagState | None:
    """Return it; None where there is none, or it cannot be read. Any process. Raises ``UnavailableError``."""
    try:
        return decoder(LagState).decode(store.get(NAME) or b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def forget(store: RewritableStore) -> None:
    """Take it away, if there is one: no group is wanted any more. Driver. Raises ``UnavailableError``."""
    if store.get(NAME) is not None:
        store.delete(NAME)


def write(store: RewritableStore, state: LagState) -> None:
    """Write it over what is there. Driver; a failure is passed over."""
    with contextlib.suppress(OnceonlyError):
        store.replace(NAME, msgspec.json.encode(state))
