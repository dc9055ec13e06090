"""Opening a store by its address, in any process: planner, commit process, executor, driver, tool.

Addresses are names; who asks, and by which endpoint, is known by process: what a job's Hadoop was told is the same for
all of it. The driver has it from its session; the processes that plan and commit are handed it with the format's class,
which Spark passes on as bytes, and executors with their tasks. It is in no plan, no option and no environment.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import ConfigurationError, required
from onceonly.stores.access import Hadoop
from onceonly.stores.address import Address, Kind, parse
from onceonly.stores.folder import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.stores.logins.common import Access
    from onceonly.stores.port import RewritableStore
    from onceonly.stores.uploads import S3Uploads

CONNECT: Final = "5s"
CALL: Final = "20s"
RETRIES: Final = 5
RETRIES_S: Final = 20
_RETRIES = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRIES_S)}
_CLIENTS_MAX = 16
_LOGINS = {
    Kind.S3: "fs.s3a.endpoint, fs.s3a.proxy.host, fs.s3a.encryption.key (base64, for SSE-C), or what the environment "
    "has as AWS_…",
    Kind.AZURE: "fs.azure.account.key… (base64), or fs.azure.sas.fixed.token (sv=…&se=…&sig=…)",
    Kind.GCS: "fs.gs.auth.service.account.json.keyfile, and see that this file is there on driver and executors; or "
    "fs.gs.auth.service.account.private.key",
}

_lock = threading.Lock()
_told = Hadoop()
_clients: dict[tuple[int, Kind, str, str], tuple[Access, Any]] = {}
_uploads: dict[tuple[int, str], tuple[Access, S3Uploads]] = {}


def tell(hadoop: Hadoop) -> None:
    """Say what this process's job gave to Hadoop. Any process; the last word counts, for stores opened after it."""
    global _told  # noqa: PLW0603  one job has one Hadoop
    _told = hadoop


def told() -> Hadoop:
    """Return what this process was told."""
    return _told


def address_of(text: str, *, what: str = "the checkpoint") -> Address:
    """Read an address as this job's Hadoop does. Raises ``ConfigurationError``."""
    return parse(text, what=what, default=_told.file_system)


def place_of(text: str, *, what: str) -> str:
    """Return an address as it means the same in a process that runs in another folder. Raises as ``address_of``."""
    address = address_of(text, what=what)
    return address.location if address.scheme else address.shown


def folder_of(address: Address) -> Path | None:
    """Return the folder of an address in a file system, None elsewhere."""
    from pathlib import Path

    return Path(address.path) if address.kind is Kind.FOLDER else None


def open_store(address: Address, *, private: bool = False) -> RewritableStore:
    """Open the store of what is below an address. Any process, any number of times; nothing is asked or made yet.

    What is put into a ``private`` one on HDFS, only its user can read. Who reads a bucket, its own policy says.

    Raises ``ConfigurationError`` for credentials that cannot be taken over, ``SetupError`` where a package is missing.
    """
    if address.kind is Kind.FOLDER:
        from pathlib import Path

        return LocalStore(Path(address.path))
    if address.kind is Kind.HDFS:
        from onceonly.stores.hdfs import HdfsStore

        return HdfsStore.at(address, _told, private=private)
    with required(f"a checkpoint on {address.kind.system} needs the package obstore", extra="stores"):
        from onceonly.stores.objects import ObjectStore
    return ObjectStore(_client(address), address)


def _client(address: Address) -> Any:  # noqa: ANN401  one of three classes of obstore's
    """Return a client, with its connections and the role it has asked for; one for each bucket and process."""
    access = _told.access(address)
    # A forked child must not use its parent's threads.
    key = (os.getpid(), address.kind, address.container, address.host)
    with _lock:
        known = _clients.get(key)
        if known is None or known[0] != access:
            if len(_clients) >= _CLIENTS_MAX:
                _clients.clear()
            known = _clients[key] = (access, make_client(address, access))
        return known[1]


def open_uploads(address: Address) -> S3Uploads:
    """Open the uploads into the bucket of an address. Any process; nothing is asked yet.

    Raises as ``open_store``.
    """
    from onceonly.stores import uploads

    access = _told.access(address)
    key = (os.getpid(), address.container)
    with _lock:
        known = _uploads.get(key)
        if known is None or known[0] != access:
            if len(_uploads) >= _CLIENTS_MAX:
                _uploads.clear()
            client = uploads.make_client(address, access)
            known = _uploads[key] = (access, uploads.S3Uploads(client, address, access))
        return known[1]


def make_client(address: Address, access: Access) -> Any:  # noqa: ANN401  as above
    """Make a client of ``obstore``. Pure, but for the machine's environment, profile and files of keys.

    Raises ``ConfigurationError`` for a login or an address that cannot be one.
    """
    from obstore.exceptions import BaseError

    try:
        return _made(address, access)
    except BaseError as error:
        said = str(error).partition("\n")[0].partition(": ")[2]  # no part of a key
        raise ConfigurationError(
            f"{address.text} cannot be reached as the job's settings say: {said}",
            next_step=f"correct {_LOGINS[address.kind]}",
        ) from None


def _made(address: Address, access: Access) -> Any:  # noqa: ANN401  as above
    from obstore.store import AzureStore, GCSStore, S3Store

    config = dict(access.config)
    client = {"timeout": CALL, "connect_timeout": CONNECT, **access.client}
    how: dict[str, Any] = {"config": config, "client_options": client, "retry_config": _RETRIES}
    if address.kind is Kind.AZURE:
        return AzureStore(address.container, **how)
    if address.kind is Kind.GCS:
        return GCSStore(address.container, **how)
    from onceonly.stores.profiles import endpoint_of_machine, profile

    if access.keys is not None:
        # Not in the configuration, beside which a token of the environment would be taken, too.
        key, secret, token = access.keys
        credential = {"access_key_id": key, "secret_access_key": secret, "token": token or None}
        how["credential_provider"] = lambda: {**credential, "expires_at": None}
    elif access.machine:
        how["credential_provider"], region = profile()
        if region:
            config.setdefault("region", region)
    if "endpoint" not in config:
        given = endpoint_of_machine()
        client.setdefault("allow_http", given.startswith("http:"))
        if given:  # the environment names the server, not the bucket's own name at it
            config["virtual_hosted_style_request"] = False
    return S3Store(address.container, **how)
