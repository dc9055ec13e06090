"""What each answer of a server, or of the network, means for the query. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, UnavailableError

if TYPE_CHECKING:
    from onceonly.errors import OnceonlyError
    from onceonly.sinks.redis.options import RedisOptions

# What Redis 6.2 writes before whatever a script was refused; later ones leave the refusal as it is.
_IN_SCRIPT = re.compile(r"^Error running script \(.*?\): (?:@user_script: ?\d+: )*-?")


def meaning(error: Exception, options: RedisOptions) -> OnceonlyError:
    """Return what an answer of the server, or of the network, means for the query. Pure."""
    from redis import exceptions as e

    where, said = f"the server {options.where}", _IN_SCRIPT.sub("", str(error))
    if isinstance(error, e.AuthenticationError | e.AuthenticationWrongNumberOfArgsError):
        found: OnceonlyError = ConfigurationError(
            f"{where} does not let the user {options.user or 'default'} in: {said}",
            next_step="see to the options user and password",
        )
    elif isinstance(error, e.NoPermissionError) or "ACL failure" in said or "can't run this" in said:
        found = ConfigurationError(
            f"{where} does not permit the user {options.user or 'default'} what the sink does: {said}",
            next_step=f"grant it: ACL SETUSER {options.user or 'default'} ~{options.prefix}* +@read +@write "
            "+@scripting +info +ping +cluster|slots +asking",
        )
    elif isinstance(error, e.MovedError | e.AskError | e.ClusterCrossSlotError):
        found = ConfigurationError(
            f"{where} has become a node of a cluster",
            next_step="start the query again",
        )
    elif "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
        found = ConfigurationError(
            f"the certificate of {where} is not trusted: {said}",
            next_step="name the file of its authority in the option tls.ca",
        )
    elif said.startswith("WRONGTYPE"):
        found = ConfigurationError(
            f"{where} has something else under the key of a row than a hash, which is somebody else's",
            next_step="remove or rename it, or set the option prefix",
        )
    elif isinstance(error, e.ResponseError) and not _passes(error, said):
        found = ConfigurationError(f"{where} refuses: {said}", next_step="see what it says, and its log")
    else:
        found = _passing(error, where, said)
    return found


def _passes(error: Exception, said: str) -> bool:
    """Say whether a refusal may pass by itself. The client takes its word away where it has a class for it."""
    from redis import exceptions as e

    classes = e.ClusterDownError | e.MasterDownError | e.TryAgainError | e.NoScriptError
    words = ("BUSY", "LOADING", "MASTERDOWN", "NOREPLICAS", "MISCONF", "OOM", "READONLY")
    return isinstance(error, classes | e.OutOfMemoryError | e.ReadOnlyError) or said.startswith(words)


def _passing(error: Exception, where: str, said: str) -> UnavailableError:
    """Return what an answer means that may be another one later."""
    from redis import exceptions as e

    if isinstance(error, e.OutOfMemoryError) or said.startswith("OOM"):
        return UnavailableError(
            f"{where} has used up its maxmemory and throws nothing away, so that it takes no rows",
            next_step="give it more memory, or remove what nobody needs; the query goes on by itself then",
        )
    if said.startswith("MISCONF"):
        return UnavailableError(
            f"{where} could not write its own disk, and takes no rows until it can: {said}",
            next_step="make room there, or see what its log says of that disk, and have it try again (BGSAVE); the "
            "query goes on by itself then",
        )
    if isinstance(error, e.ReadOnlyError) or said.startswith("READONLY"):
        return UnavailableError(
            f"{where} has become a replica, which takes no writes",
            next_step="name its primary in the option url, if it stays one",
        )
    if isinstance(error, e.ClusterDownError) and not isinstance(error, e.MasterDownError):
        return UnavailableError(
            f"the cluster of {where} has no primary for some slots: {said}",
            next_step="see to the primary that is down, or let a replica take over; the query goes on by itself then",
        )
    if isinstance(error, e.ResponseError | e.BusyLoadingError):
        return UnavailableError(
            f"{where} does not do now what the sink asks: {said}",
            next_step="see what it says, if that lasts; the query goes on by itself when it does",
        )
    return UnavailableError(
        f"{where} does not answer: {type(error).__name__}: {said}",
        next_step="see whether it runs and can be reached; rows that it has are not written twice",
    )
