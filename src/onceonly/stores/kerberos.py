"""Logins by Kerberos to a web server, by ``gssapi``: the proof that goes with a request, and what a refusal means."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from onceonly.errors import ConfigurationError, SetupError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYTAB: Final = "KRB5_CLIENT_KTNAME"
"""The environment's name for a keytab, by which a process gets its tickets itself, and new ones in time."""

# Errors of the protocol are numbered from here on, in MIT's library and in Heimdal: krb5_err.et, as 32 bits unsigned.
_BASE: Final = 2529638912
_UNREACHABLE: Final = frozenset({29, 156})  # KRB_AP_ERR_SVC_UNAVAILABLE, KRB5_KDC_UNREACH
_NEW_KEYS = f"make it anew (its keys were changed at the KDC), and name it in {KEYTAB}"
_RENEW = (
    f"get a new one (kinit) on driver and executors, or name a keytab in {KEYTAB}, by which tickets are got in time, "
    "and start the query again"
)
_CLOCK = "set the clock (NTP), and start the query again"
_CAUSES: Mapping[int, tuple[str, str]] = {
    6: ("the KDC does not know who asks", f"name a keytab of a principal that it knows in {KEYTAB}"),
    7: (
        "the KDC does not know this server by that name",
        "give the name nodes' HTTP addresses (dfs.namenode.http-address…) by the host names that their principals have",
    ),
    24: ("the keytab does not fit the KDC", _NEW_KEYS),
    31: ("the keytab does not fit the KDC", _NEW_KEYS),
    32: ("the ticket has expired", _RENEW),
    37: ("this machine's clock differs too much from the KDC's", _CLOCK),
    154: (
        "it is not known where the realm's KDC is",
        "put the realm's krb5.conf on driver and executors, and name it in KRB5_CONFIG where it is not in /etc",
    ),
}
_SAID = re.compile(r"Mechanism level: ([^()<\n]{1,100})")


class NoKdcError(Exception):
    """No KDC answers now. Nothing was asked of anybody else."""


def proof(host: str) -> str:
    """Return what a request to a web server has as ``Authorization``, by the ticket or keytab of this process's user.

    Raises ``ConfigurationError`` that says which of both is wrong, ``SetupError`` without ``gssapi``, ``NoKdcError``.
    """
    try:
        import gssapi
    except (ImportError, OSError) as error:  # the library in C that it needs may be missing
        raise SetupError(
            f"HDFS asks for a login by Kerberos, for which the package gssapi cannot be used here: {error}",
            next_step="pip install gssapi on driver and executors (it needs the libraries of Kerberos)",
        ) from error
    try:
        service = gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service)
        token = gssapi.SecurityContext(name=service, usage="initiate").step()
    except gssapi.exceptions.GSSError as error:
        raise _failure(host, error.min_code, str(error)) from error
    return f"Negotiate {base64.b64encode(token or b'').decode()}"


def refused(server: str, body: bytes) -> ConfigurationError:
    """Return the error for a proof that a server did not take; of its answer, ``body``, a word is shown. Pure."""
    match = _SAID.search(body.decode(errors="replace"))
    said = match[1].strip() if match else ""
    if said.startswith("Clock skew"):
        return ConfigurationError(
            f"{server} does not accept the login by Kerberos: this machine's clock differs too much from its own",
            next_step=_CLOCK,
        )
    return ConfigurationError(
        f"{server} does not accept the login by Kerberos{f': {said}' if said else ''}",
        next_step=f"get a new ticket (kinit, or {KEYTAB} with a keytab) on driver and executors; if it stays so, see "
        "that this server's own keytab fits the KDC",
    )


def _failure(host: str, code: int, text: str) -> Exception:
    """Return the error for a number of the library's. Pure."""
    said = text.rpartition("): ")[2]
    number = code - _BASE
    if number in _UNREACHABLE:
        return NoKdcError(said)
    if number in _CAUSES:
        what, next_step = _CAUSES[number]
        return ConfigurationError(f"no Kerberos ticket for HTTP@{host}: {what} ({said})", next_step=next_step)
    return ConfigurationError(
        f"there is no Kerberos ticket for HTTP@{host}: {said}",
        next_step=f"get one (kinit, or {KEYTAB} with a keytab) on driver and executors",
    )
