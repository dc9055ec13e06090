"""Google Cloud Storage. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onceonly.stores.logins.common import (
    MACHINE,
    TRUE,
    Access,
    foreign_class,
    proxy,
    refuse_stores_of_secrets,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.stores.address import Address
    from onceonly.stores.logins.common import Settings

_NOBODY = json.dumps({"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True})
"""The key of nobody, with which no token is asked for."""


def access(hadoop: Settings, address: Address) -> Access:  # noqa: ARG001  one account for all buckets
    """Return how a bucket is reached. Raises ``ConfigurationError`` that names what cannot be taken over."""

    def gs(*names: str, default: str = "") -> str:
        # The connector has two families of names, of which the older one is still set by many platforms.
        each = (f"{family}{name}" for name in names for family in ("fs.gs.", "google.cloud."))
        return hadoop.get(*each, default=default)

    kind = gs("auth.type").upper()
    _refuse_google(gs, kind)
    config: dict[str, Any] = {}
    client = proxy(*gs("proxy.address").partition(":")[::2], gs("proxy.username"), gs("proxy.password"))
    if gs("storage.root.url"):
        config["base_url"] = gs("storage.root.url").rstrip("/")
        client["allow_http"] = config["base_url"].startswith("http:")
    if gs("auth.null.enabled").lower() in TRUE or kind == "UNAUTHENTICATED":
        # To leave the signature out would not do: for a put, obstore then looks for credentials all the same.
        return Access(config={**config, "service_account_key": _NOBODY}, client=client, machine=False)
    key = _google_key(gs)
    if key:
        return Access(config={**config, **key}, client=client, machine=False)
    if gs("auth.service.account.email"):
        refuse_stores_of_secrets(hadoop, "fs.gs.auth.service.account.private.key")
    return Access(config=config, client=client)


def _refuse_google(gs: Callable[..., str], kind: str) -> None:
    for name in ("auth.access.token.provider.impl", "auth.access.token.provider"):
        if gs(name):
            raise foreign_class(f"fs.gs.{name}", gs(name))
    for name in (
        "auth.service.account.keyfile",
        "auth.impersonation.service.account",
        "encryption.algorithm",
    ):
        if gs(name):
            raise unknown(
                f"fs.gs.{name}",
                "which has no counterpart here",
                "give a key in JSON, as fs.gs.auth.service.account.json.keyfile, or let the machine have the role",
            )
    if kind in {"ACCESS_TOKEN_PROVIDER", "USER_CREDENTIALS"}:
        raise unknown("fs.gs.auth.type", f"and {kind} is not done here", MACHINE)


def _google_key(gs: Callable[..., str]) -> dict[str, Any]:
    if gs("auth.service.account.json.keyfile"):
        return {"service_account": gs("auth.service.account.json.keyfile")}
    email, key = gs("auth.service.account.email"), gs("auth.service.account.private.key")
    if not email or not key:
        return {}
    told = {
        "type": "service_account",
        "client_email": email,
        "private_key_id": gs("auth.service.account.private.key.id"),
        # In a file of settings, line ends are written as letters.
        "private_key": str(key).replace("\\n", "\n"),
    }
    return {"service_account_key": json.dumps(told)}
