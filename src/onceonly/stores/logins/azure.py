"""Azure Storage. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from onceonly.stores.logins.common import Access, foreign_class, nearest, refuse_stores_of_secrets, unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.stores.address import Address
    from onceonly.stores.logins.common import Settings

_BY_CLIENT = "ClientCredsTokenProvider"
_BY_IDENTITY = "MsiTokenProvider"
_BY_WORKLOAD = "WorkloadIdentityTokenProvider"
_LOGIN_HOST = re.compile(r"(?P<host>https?://[^/]+)/(?P<tenant>[^/]+)/.*")


def access(hadoop: Settings, address: Address) -> Access:
    """Return how a container is reached. Raises ``ConfigurationError`` that names what cannot be taken over."""
    blob = address.host.replace(".dfs.", ".blob.", 1)

    def azure(name: str, default: str = "") -> str:
        # A setting of one container or account wins over that of all.
        levels = ([f".{address.container}.{address.host}"], [f".{address.host}", f".{blob}"], [""])
        return nearest(
            hadoop, *([f"fs.azure.{name}{end}" for end in ends] for ends in levels), default=default
        )

    account, _, domain = address.host.partition(".")
    config: dict[str, Any] = {"account_name": account}
    # As ABFS does: without TLS only where the address and the settings both say so.
    plain = address.scheme in {"abfs", "wasb"} and azure("always.use.https").lower() == "false"
    scheme = "http" if plain else "https"
    client = {"allow_http": True} if plain else {}
    if azure("abfs.endpoint"):  # an emulator's host and port
        config["endpoint"] = f"{scheme}://{azure('abfs.endpoint')}/{account}"
    elif plain or domain != "dfs.core.windows.net":
        config["endpoint"] = f"{scheme}://{blob}"
    kind = azure("account.auth.type", default="SharedKey").lower()
    _refuse_azure(azure, kind)
    if azure("encryption.encoded.client-provided-key"):
        config["encryption_key"] = azure("encryption.encoded.client-provided-key")
    if kind == "oauth":
        config |= _azure_oauth(hadoop, address, azure)
        return Access(client=client, config=config, machine=config["credential_type"] != "client_secret")
    key = azure("account.key")
    sas = azure("sas.fixed.token") or hadoop.get(f"fs.azure.sas.{address.container}.{blob}")
    if sas and (kind == "sas" or not key):
        return Access(
            client=client, config={**config, "credential_type": "sas_token", "sas_key": sas}, machine=False
        )
    if kind == "sas":
        refuse_stores_of_secrets(hadoop, f"fs.azure.sas.fixed.token.{address.host}")
        raise unknown(
            "fs.azure.account.auth.type",
            "which is SAS, and there is no token",
            "set fs.azure.sas.fixed.token",
        )
    if key:
        return Access(
            client=client,
            config={**config, "credential_type": "access_key", "account_key": key},
            machine=False,
        )
    refuse_stores_of_secrets(hadoop, f"fs.azure.account.key.{address.host}")
    return Access(client=client, config=config)


def _refuse_azure(azure: Callable[..., str], kind: str) -> None:
    """Refuse what names a class that Python cannot ask, and a way to log in that nobody knows."""
    for name, known in (
        ("account.keyprovider", "SimpleKeyProvider"),
        ("sas.token.provider.type", "FixedSASTokenProvider"),
        ("encryption.context.provider.type", ""),
        *((("account.oauth.provider.type", ""),) if kind == "custom" else ()),
    ):
        if azure(name) and azure(name).rpartition(".")[2] != known:
            raise foreign_class(f"fs.azure.{name}", azure(name))
    if kind not in {"sharedkey", "oauth", "sas"}:
        raise unknown(
            "fs.azure.account.auth.type", f"and {kind!r} is not known", "use SharedKey, OAuth or SAS"
        )


def _azure_client(hadoop: Settings, address: Address, azure: Callable[..., str]) -> dict[str, Any]:
    given = {name: azure(f"account.oauth2.client.{name}") for name in ("id", "secret", "endpoint")}
    missing = next((name for name, value in given.items() if not value), None)
    if missing:
        refuse_stores_of_secrets(hadoop, f"fs.azure.account.oauth2.client.{missing}.{address.host}")
    endpoint = _LOGIN_HOST.fullmatch(given["endpoint"])
    if missing or endpoint is None:
        raise unknown(
            f"fs.azure.account.oauth2.client.{missing or 'endpoint'}",
            "which is missing" if missing else "which names no tenant",
            "set client.id, client.secret, and client.endpoint as "
            "https://login.microsoftonline.com/<tenant>/oauth2/token",
        )
    return {
        "credential_type": "client_secret",
        "client_secret": given["secret"],
        "tenant_id": endpoint["tenant"],
        "authority_host": endpoint["host"],
    }


def _azure_oauth(hadoop: Settings, address: Address, azure: Callable[..., str]) -> dict[str, Any]:
    kind = azure("account.oauth.provider.type")
    short = kind.rpartition(".")[2]
    found: dict[str, Any] = {}
    if azure("account.oauth2.client.id"):
        found["client_id"] = azure("account.oauth2.client.id")
    if short == _BY_CLIENT:
        found |= _azure_client(hadoop, address, azure)
    elif short == _BY_IDENTITY:
        found["credential_type"] = "managed_identity"
        if azure("account.oauth2.msi.endpoint"):
            found["msi_endpoint"] = azure("account.oauth2.msi.endpoint")
    elif short == _BY_WORKLOAD:
        found["credential_type"] = "workload_identity"
        for name, option in (
            ("msi.tenant", "tenant_id"),
            ("msi.authority", "authority_host"),
            ("token.file", "federated_token_file"),
        ):
            if azure(f"account.oauth2.{name}"):
                found[option] = azure(f"account.oauth2.{name}").rstrip("/")
    else:
        raise foreign_class("fs.azure.account.oauth.provider.type", kind)
    return found
