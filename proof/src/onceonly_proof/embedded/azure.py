"""Azure's blob storage on loopback, Azurite: gone with the process.

::

    with EmbeddedAzure() as azure:
        azure.make_container("checkpoints")
        ...  # azure.address("checkpoints", "orders"), azure.hadoop()

With a certificate it speaks TLS, and takes bearer tokens whose claims fit, whoever signed them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from onceonly_proof.embedded.node import ensure_packages, node
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNT = "embedded"
HOST = f"{ACCOUNT}.dfs.core.windows.net"
KEY = base64.b64encode(b"secret-of-a-test").decode()
_ACCOUNTS = "AZURITE_ACCOUNTS"
_VERSION = "2023-11-03"
_SAS_VERSION = "2021-12-02"
_READY_S, _POLL_S, _CALL_S = 60.0, 0.1, 10.0
_EXISTS = 409


class EmbeddedAzure(EmbeddedServer):
    """One server with one account. Not shared between threads.

    A SIGKILL may cost what was put in its last seconds: it is no server for campaigns.
    """

    title = "the Azure server"
    lines_shown = 10

    def __init__(self, directory: Path | None = None, *, tls: tuple[Path, Path] | None = None) -> None:
        """``tls`` are a certificate for 127.0.0.1 and its key, PEM."""
        super().__init__(directory, prefix="azure")
        self._port = 0
        self._tls = tls
        self._trust = None if tls is None else ssl.create_default_context(cafile=tls[0])

    @property
    def url(self) -> str:
        """The endpoint of the account. Known once it was started."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._port}/{ACCOUNT}"

    def address(self, container: str, folder: str) -> str:
        """Return the address of a folder as a job gives it: ``abfs:`` where the server speaks no TLS."""
        return f"abfs{'s' if self._tls else ''}://{container}@{HOST}/{folder}"

    def hadoop(self, key: str = KEY) -> dict[str, str]:
        """Return Hadoop's settings, as ``fs.azure.…``; without a key, no login."""
        plain = {} if self._tls else {"fs.azure.always.use.https": "false"}
        login = {f"fs.azure.account.key.{HOST}": key} if key else {}
        return {"fs.azure.abfs.endpoint": f"127.0.0.1:{self._port}", **plain, **login}

    def sas(self, container: str, rights: str, *, until: str = "2099-01-01T00:00:00Z") -> str:
        """Return a SAS token for a container, signed by the account's key. ``rights`` are letters, as ``rcwdl``."""
        place = f"/blob/{ACCOUNT}/{container}"
        words = [rights, "", until, place, "", "", "", _SAS_VERSION, "c", *[""] * 7]
        given = {"sv": _SAS_VERSION, "se": until, "sr": "c", "sp": rights, "sig": _signed("\n".join(words))}
        return urlencode(given)

    def start(self) -> None:
        """Start it and wait until it answers. Idempotent while it runs.

        Raises:
            SetupError: no Node, no packages, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        tls = (
            []
            if self._tls is None
            else ["--cert", str(self._tls[0]), "--key", str(self._tls[1]), "--oauth", "basic"]
        )
        program = ensure_packages("azurite") / "azurite" / "dist" / "src" / "blob" / "main.js"
        self._port = self._port or free_ports(1)[0]
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process = self._launch(
            [
                "/usr/bin/env", f"{_ACCOUNTS}={ACCOUNT}:{KEY}", str(node()), str(program),
                "--blobHost", "127.0.0.1", "--blobPort", str(self._port), "--location", str(self.directory),
                "--silent", "--disableTelemetry", *tls,
            ]
        )  # fmt: skip
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)

    def make_container(self, name: str) -> None:
        """Make a container, which ``obstore`` cannot. Idempotent. Raises ``OSError``."""
        try:
            self._put(f"/{name}", {"restype": "container"})
        except HTTPError as error:
            if error.code != _EXISTS:
                raise

    def _answers(self) -> bool:
        try:
            urlopen(self.url, timeout=_CALL_S, context=self._trust).close()  # noqa: S310  of this machine
        except HTTPError:
            return True  # a login is missing
        except OSError:
            return False
        return True

    def _put(self, path: str, query: dict[str, str]) -> None:
        """Put nothing at a path of the account, signed by its key."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        told = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        # The path of an emulator has the account in it, and the signed resource begins with the account.
        resource = f"/{ACCOUNT}/{ACCOUNT}{path}" + "".join(f"\n{k}:{v}" for k, v in sorted(query.items()))
        words = "PUT" + "\n" * 12 + told + resource
        login = f"SharedKey {ACCOUNT}:{_signed(words)}"
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        request = Request(  # noqa: S310  of this machine
            f"{self.url}{path}?{asked}",
            method="PUT",
            data=b"",
            headers={**headers, "Authorization": login, "Content-Type": ""},
        )
        urlopen(request, timeout=_CALL_S, context=self._trust).close()  # noqa: S310  of this machine


def _signed(words: str) -> str:
    """Sign by the account's key. Pure."""
    return base64.b64encode(hmac.new(base64.b64decode(KEY), words.encode(), hashlib.sha256).digest()).decode()
