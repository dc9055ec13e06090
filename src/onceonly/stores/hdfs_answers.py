"""What an answer of HDFS's means: the cause in one sentence, and what to do. Pure."""

from __future__ import annotations

import http.client
import json
import re
from typing import Final

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.stores.kerberos import KEYTAB

MISSING: Final = "FileNotFoundException"
TAKEN: Final = "FileAlreadyExistsException"
NO_FOLDER: Final = "ParentNotDirectoryException"
QUOTAS: Final = frozenset(
    {"NSQuotaExceededException", "DSQuotaExceededException", "QuotaByStorageTypeExceededException"}
)
PASSING: Final = frozenset(
    {"StandbyException", "RetriableException", "SafeModeException", "ServerTooBusyException"}
)
"""Another name node may know better, or this one a little later."""
RAISE: Final = "raise its quota (hdfs dfsadmin -setQuota, -setSpaceQuota), or make room below it"
_ADDRESS = "dfs.namenode.http-address"
_STRANGE = f"as neither a name node nor HttpFS does ({_ADDRESS} is the port of its web page)"
_OF_DATA_NODES = ("Invalid operation", "java.net.UnknownHostException: null")
_NO_FOLDER = "(is not a directory)"
_BUSY, _SERVER_ERROR = 429, 500
_DENIED = frozenset({"AccessControlException", "AuthorizationException"})
_EXPIRED = frozenset({"InvalidToken", "SecretManager$InvalidToken"})
_ACCESS = re.compile(r"\baccess=([A-Z_]+)")
_ASLEEP = "safe mode"
_GIVE = "(hdfs dfs -chmod, -chown or -setfacl)"


class RefusedError(Exception):
    """The name node's own word: ``name`` is the class of its exception, without its package."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name

    @property
    def gist(self) -> str:
        """What is told of one that passes: its name; where the name node is in safe mode, by its own words."""
        return str(self) if _ASLEEP in str(self) else self.name


class StrangerError(Exception):
    """An answer that no name node gives, nor HttpFS: somebody else is at the address."""


def refused(status: int, body: bytes) -> Exception:
    """Return what an answer that is no success means. It may quote paths, never a login."""
    try:
        told = json.loads(body)["RemoteException"]
        name, message = str(told["exception"]), str(told.get("message", ""))
    except (ValueError, LookupError, TypeError):
        said = f"HTTP {status} {http.client.responses.get(status, '')}".rstrip()
        if status == _BUSY or status >= _SERVER_ERROR:
            # Of whoever stands before a name node, and does not tell what that has done.
            return http.client.HTTPException(said)
        return StrangerError(f"it answers {said}, {_STRANGE}")
    first = message.partition("\n")[0][:300]
    if name in _DENIED and first.endswith(_NO_FOLDER):
        return RefusedError(NO_FOLDER, first)
    if name == "IllegalArgumentException" and first.startswith(_OF_DATA_NODES):
        return StrangerError(f"it answers like a data node, {_STRANGE}")
    if name in _DENIED:
        return ConfigurationError(f"HDFS does not permit it: {first}", next_step=_right(first))
    # A name node wraps it into an error of another name.
    if name in _EXPIRED or "InvalidToken" in first or ("token" in first and "expired" in first):
        return ConfigurationError(
            f"HDFS does not accept the login any more: {first}",
            next_step="get a new ticket (kinit), or, as those that YARN hands out end, name a keytab in "
            f"{KEYTAB} on driver and executors, and start the query again",
        )
    return RefusedError(name, first)


def unanswered(what: str, why: str, waited_s: float) -> UnavailableError:
    """Make the error for a call that no name node has carried out in time; ``why`` is what each of them said last."""
    if _ASLEEP in why:
        return UnavailableError(
            f"HDFS is in safe mode, and for {waited_s:g} s did not do what was asked ({what}): {why}",
            next_step="see why: its data nodes may not all be there yet, or the name node's own disk is full; once it "
            "has left that (hdfs dfsadmin -safemode leave), start the query again",
        )
    return UnavailableError(
        f"HDFS did not answer for {waited_s:g} s ({what}): {why}",
        next_step=f"see to the name nodes and data nodes, to their HTTP addresses ({_ADDRESS}), to the KDC if there is "
        "one, and to the network between, and start the query again",
    )


def next_step(error: Exception) -> str:
    """Say what to do about a call that was refused."""
    if isinstance(error, RefusedError) and error.name in QUOTAS:
        return f"{RAISE}, and start the query again"
    if isinstance(error, RefusedError) and error.name == NO_FOLDER:
        return "rename or remove the file that lies where a folder must be, and start the query again"
    return "see to HDFS (space, quotas, safe mode) and start the query again"


def _right(message: str) -> str:
    """Say which right is to be given, by what a name node says of one that is missing."""
    if "sticky bit" in message:
        return (
            "there only the owner of a file, or of the folder, may rename or remove it: give what lies there to the "
            "job's user (hdfs dfs -chown -R), or take the sticky bit away (hdfs dfs -chmod -t)"
        )
    match = _ACCESS.search(message)
    access = match[1] if match else "WRITE"
    if "WRITE" in access or access == "ALL":
        return f"give the job's user the right to write in this folder {_GIVE}"
    if access == "EXECUTE":
        return f"give the job's user the right to pass through this folder (x) {_GIVE}"
    return f"give the job's user the right to read and to list this folder {_GIVE}"
