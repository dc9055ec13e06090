"""HDFS by its REST interface: WebHDFS of a name node, or HttpFS. No JVM and no library; Kerberos by ``gssapi``.

In a container of YARN's, its delegation token takes the place of a login by Kerberos.
Each call asks the name node that answered last, and the others where it is down, on standby or in safe mode. Data go to
and come from the data node that the name node names.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import os
import ssl
import threading
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from onceonly.errors import ConfigurationError
from onceonly.stores import kerberos
from onceonly.stores.hdfs_answers import (
    MISSING,
    PASSING,
    TAKEN,
    RefusedError,
    StrangerError,
    refused,
    unanswered,
)
from onceonly.stores.name_nodes import Server, servers, service_of
from onceonly.stores.tokens import token_of_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.stores.access import Hadoop
    from onceonly.stores.address import Address

T = TypeVar("T")

_ROOT = "/webhdfs/v1"
_CONNECT_S = 5.0
_CALL_S = 20.0
_AGAIN_S = 20.0
_DELAY_S = 0.5
_DELEGATED = "delegation="
_OK = frozenset({200, 201})
_ELSEWHERE = frozenset({302, 303, 307})
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class BrokenOffError(Exception):
    """No answer to a call that had been sent."""


class WebHdfs:
    """Calls to the name nodes of one service. Several threads may use one."""

    def __init__(
        self, nodes: tuple[Server, ...], *, user: str = "", kerberos: bool = False, token: str = ""
    ) -> None:
        """``token`` is a delegation token, in place of a proof by Kerberos."""
        self._nodes = list(nodes)
        self._login = {"delegation": token} if token else {"user.name": user} if user else {}
        self._user = user
        self._kerberos = kerberos
        self._lock = threading.Lock()

    @classmethod
    def of(cls, address: Address, hadoop: Hadoop) -> WebHdfs:
        """Make the client of an address. Nothing is asked yet."""
        if hadoop.get("hadoop.security.authentication").lower() != "kerberos":
            return cls(servers(address, hadoop), user=os.environ.get("HADOOP_USER_NAME") or getpass.getuser())
        token = token_of_process(service_of(address, hadoop))
        return cls(servers(address, hadoop), kerberos=True, token=token)

    def ask(self, method: str, operation: str, path: str, **more: str) -> Any:  # noqa: ANN401  JSON
        """Ask the name node, until one answers; for what may be asked twice.

        Raises ``RefusedError``, ``UnavailableError`` when none does for 20 s, ``ConfigurationError`` for a login.
        """
        return _json(self._repeat(method, operation, path, b"", more))

    def act(self, method: str, operation: str, path: str, **more: str) -> Any:  # noqa: ANN401  JSON
        """Ask the name node once; for what may not be done twice. Raises ``BrokenOffError`` for no answer."""
        return _json(self._repeat(method, operation, path, b"", more, once=True))

    def rename(self, source: str, destination: str) -> bool:
        """Rename a file or a folder, unless the name is taken; say whether it was free.

        Raises ``BrokenOffError`` for no answer, ``RefusedError`` with ``MISSING`` where the source is not there, or the
        folder of the new name.
        """
        try:
            answer = self.act("PUT", "RENAME", source, destination=destination, renameoptions="NONE")
        except RefusedError as error:
            if error.name == TAKEN:
                return False
            raise
        # HttpFS has the older rename, which says no and not why.
        if answer.get("boolean") is False:
            if self.status(destination) is not None:
                return False
            name = "RenameRefused" if self.status(source) is not None else MISSING
            raise RefusedError(name, f"HDFS would not rename {source} to {destination}")
        return True

    def status(self, path: str) -> dict[str, Any] | None:
        """Return what a name node knows of a file or folder, None where nothing has this name. Raises as ``ask``."""
        try:
            found: dict[str, Any] = self.ask("GET", "GETFILESTATUS", path)["FileStatus"]
        except RefusedError as error:
            if error.name == MISSING:
                return None
            raise
        return found

    def user(self) -> str:
        """Return by what name the name nodes know whoever asks. Raises as ``ask``."""
        home: str = self.ask("GET", "GETHOMEDIRECTORY", "/")["Path"]
        return home.rpartition("/")[2]

    def idle(self, path: str) -> float | None:
        """Return the seconds since a file was written, None where nothing has this name. Raises as ``ask``.

        Both times are the name node's: this machine's clock may be another.
        """

        def ask(node: Server) -> float:
            status, headers, body = self._send(node, "GET", self._target("GETFILESTATUS", path, {}), b"")
            if status not in _OK:
                raise self._refusal(node, status, body)
            date = headers["Date"]
            now = parsedate_to_datetime(date).timestamp() if date else time.time()
            return max(0.0, now - int(_json(body)["FileStatus"]["modificationTime"]) / 1000)

        try:
            return self._tried(ask, f"GETFILESTATUS of {path}")
        except RefusedError as error:
            if error.name == MISSING:
                return None
            raise

    def read(self, path: str, **more: str) -> bytes:
        """Read a file, whole, or as ``offset`` and ``length`` say. Raises as ``ask``."""
        return self._repeat("GET", "OPEN", path, b"", more)

    def write(self, name: Callable[[], str], data: bytes, *, permission: str = "") -> None:
        """Write a file, over what is there, and its folders. ``permission`` is octal. Raises as ``ask``.

        After a try that broke off, the next is at a new ``name``: a data node may write late, and not all of it.
        """
        more = {"overwrite": "true", **({"permission": permission} if permission else {})}
        path = name()

        def write(node: Server) -> None:
            nonlocal path
            try:
                self._call(node, "PUT", "CREATE", path, data, more)
            except (OSError, http.client.HTTPException):
                path = name()
                raise

        self._tried(write, f"CREATE of {path}")

    def create(self, path: str) -> Sending:
        """Begin a new file in a folder that must be there. Raises as ``ask``; what is refused is told at its end."""
        more = {"overwrite": "false", "createparent": "false"}
        return self._tried(lambda node: self._begin(node, path, more), f"CREATE of {path}")

    def _repeat(
        self,
        method: str,
        operation: str,
        path: str,
        data: bytes,
        more: dict[str, str],
        *,
        once: bool = False,
    ) -> bytes:
        return self._tried(
            lambda node: self._call(node, method, operation, path, data, more),
            f"{operation} of {path}",
            once=once,
        )

    def _tried(self, call: Callable[[Server], T], what: str, *, once: bool = False) -> T:
        """Call one name node after the other until one answers."""
        deadline = time.monotonic() + _AGAIN_S
        why: dict[str, str] = {}
        while True:
            for node in list(self._nodes):
                try:
                    answer = call(node)
                except (_NotSentError, StrangerError) as error:
                    why[node.text] = str(error)
                except (OSError, http.client.HTTPException) as error:
                    why[node.text] = f"{node.text}: {type(error).__name__} {error}"
                    if once:
                        raise BrokenOffError(why[node.text]) from error
                except RefusedError as error:
                    if error.name not in PASSING:
                        raise
                    why[node.text] = f"{node.text}: {error.gist}"
                else:
                    self._prefer(node)
                    return answer
            if time.monotonic() + _DELAY_S > deadline:
                raise unanswered(what, "; ".join(why.values()), _AGAIN_S)
            time.sleep(_DELAY_S)

    def _prefer(self, node: Server) -> None:
        with self._lock:
            if self._nodes[0] != node:
                self._nodes.sort(key=lambda each: each != node)

    def _call(
        self, node: Server, method: str, operation: str, path: str, data: bytes, more: dict[str, str]
    ) -> bytes:
        status, headers, body = self._send(node, method, self._target(operation, path, more), b"")
        if status in _ELSEWHERE:
            node, target = _elsewhere(node, headers)
            status, _, body = self._send(node, method, target, data)
        if status in _OK:
            return body
        raise self._refusal(node, status, body)

    def _begin(self, node: Server, path: str, more: dict[str, str]) -> Sending:
        status, headers, body = self._send(node, "PUT", self._target("CREATE", path, more), b"")
        if status not in _ELSEWHERE:
            raise self._refusal(node, status, body)
        there, target = _elsewhere(node, headers)
        connection = self._connected(there)
        connection.putrequest("PUT", target)
        for name, value in {**self._headers(there, target), "Transfer-Encoding": "chunked"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        return Sending(connection, lambda status, body: self._refusal(there, status, body))

    def _target(self, operation: str, path: str, more: dict[str, str]) -> str:
        return f"{_ROOT}{quote(path)}?{urlencode({'op': operation, **more, **self._login})}"

    def _refusal(self, node: Server, status: int, body: bytes) -> Exception:
        told = refused(status, body)
        if isinstance(told, ConfigurationError):
            return told
        if self._kerberos and (status == _UNAUTHORIZED or (status == _FORBIDDEN and body[:1] != b"{")):
            return kerberos.refused(node.text, body)  # one by HDFS itself is told as JSON
        if status == _UNAUTHORIZED:
            return ConfigurationError(
                f"{node.text} does not accept the login of {self._user!r}, which has no proof",
                next_step="set hadoop.security.authentication=kerberos (spark.hadoop.…), if this cluster has it",
            )
        return StrangerError(f"{node.text}: {told}") if isinstance(told, StrangerError) else told

    def _send(
        self, node: Server, method: str, target: str, data: bytes
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one request. Raises ``_NotSentError`` before anything was sent, then ``OSError``, ``HTTPException``."""
        headers = self._headers(node, target)
        with contextlib.closing(self._connected(node)) as connection:
            connection.request(method, target, body=data or None, headers=headers)
            response = connection.getresponse()
            # Fewer bytes than were announced are an error of http.client's.
            body = response.read()
            is_cut_unseen = not response.chunked and response.headers["Content-Length"] is None
            if is_cut_unseen and method == "GET" and response.status in _OK:
                message = "the answer does not say how long it is"
                raise http.client.HTTPException(message)
            return response.status, response.headers, body

    def _connected(self, node: Server) -> http.client.HTTPConnection:
        if node.tls:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                node.host, node.port, timeout=_CONNECT_S, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(node.host, node.port, timeout=_CONNECT_S)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            # A data node may be meant, which the name node has named.
            raise _NotSentError(f"{node.text}: {error}") from error
        connection.sock.settimeout(_CALL_S)
        return connection

    def _headers(self, node: Server, target: str) -> dict[str, str]:
        headers = {"Content-Type": "application/octet-stream"}
        # A data node is given a token, by the name node, in its address.
        if self._kerberos and _DELEGATED not in target:
            try:
                headers["Authorization"] = kerberos.proof(node.host)
            except kerberos.NoKdcError as error:
                raise _NotSentError(f"no KDC answers ({error})") from error
        return headers


class Sending:
    """A new file that is being sent to its data node, a piece at a time. One thread."""

    def __init__(
        self, connection: http.client.HTTPConnection, refusal: Callable[[int, bytes], Exception]
    ) -> None:
        self._connection = connection
        self._refusal = refusal

    def send(self, data: bytes) -> None:
        """Send some bytes. Raises ``OSError``; or what was refused, where the data node has said it already."""
        try:
            self._connection.send(b"".join((b"%x\r\n" % len(data), data, b"\r\n")))
        except OSError:
            with contextlib.suppress(OSError, http.client.HTTPException, StrangerError):
                self._answered()
            raise

    def end(self) -> None:
        """Say that this was all, and wait until the file has it. Raises as ``ask``, but does not try again."""
        try:
            self._connection.send(b"0\r\n\r\n")
            self._answered()
        except (http.client.HTTPException, StrangerError) as error:
            raise BrokenOffError(f"{type(error).__name__} {error}") from error

    def close(self) -> None:
        """Give the connection back. What was not ended stays open, and is closed by the name node later. Idempotent."""
        self._connection.close()

    def _answered(self) -> None:
        response = self._connection.getresponse()
        body = response.read()
        if response.status not in _OK:
            raise self._refusal(response.status, body)


class _NotSentError(Exception):
    """There is no connection, or no login now, so nothing was asked."""


def _elsewhere(node: Server, headers: http.client.HTTPMessage) -> tuple[Server, str]:
    """Return who was named in an answer, and what is to be asked there."""
    to = urlsplit(headers["Location"])
    there = Server(to.hostname or node.host, to.port or node.port, to.scheme == "https")
    return there, f"{to.path}?{to.query}"


def _json(body: bytes) -> Any:  # noqa: ANN401
    return json.loads(body) if body.strip() else {}
