"""An S3 server of another make on loopback, moto's: gone with the process, and its objects with it.

::

    with EmbeddedMoto() as s3:
        s3.make_bucket("checkpoints")
        ...  # s3.url, s3.hadoop()

It differs from SeaweedFS where S3 leaves room, and where it is wrong: an upload that was completed may be completed
again, what was ended by its id answers otherwise, and a copy does not look at its condition.
"""

from __future__ import annotations

import json
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer
from onceonly_proof.embedded.s3 import SECRET, client_of, open_uploads, os_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_READY_S, _POLL_S, _CALL_S = 60.0, 0.1, 10.0
_ALL = "all"


class EmbeddedMoto(EmbeddedServer):
    """One server with all in memory. Not shared between threads.

    ``rights`` are what each of its users may do, by the user's name: statements of a policy, as AWS has them. Without
    any it asks nobody who he is; with some, there is one ``all`` beside them, who may do everything.
    """

    title = "moto's server"
    lines_shown = 10

    def __init__(
        self, directory: Path | None = None, *, rights: Mapping[str, Sequence[object]] | None = None
    ) -> None:
        super().__init__(directory, prefix="moto")
        self._port = 0
        self._rights = (
            {_ALL: [{"Effect": "Allow", "Action": "*", "Resource": "*"}], **rights} if rights else {}
        )
        self._keys: dict[str, tuple[str, str]] = {}

    @property
    def url(self) -> str:
        """The endpoint. Known once it was started."""
        return f"http://127.0.0.1:{self._port}"

    def hadoop(self, user: str = _ALL) -> dict[str, str]:
        """Return Hadoop's settings for a user of it, as ``fs.s3a.…``."""
        key, secret = self._keys.get(user, (user, SECRET))
        return {
            "fs.s3a.endpoint": self.url,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": key,
            "fs.s3a.secret.key": secret,
        }

    @cached_property
    def client(self) -> Any:  # noqa: ANN401  of boto3, which has no types
        """A client of boto3."""
        return client_of(self.url, *self._keys.get(_ALL, (_ALL, SECRET)))

    def start(self) -> None:
        """Start it and wait until it answers; after a kill it is empty. Idempotent while it runs.

        Raises:
            SetupError: moto is missing, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        self._port = self._port or free_ports(1)[0]
        self.directory.mkdir(parents=True, exist_ok=True)
        given = ["-H", "127.0.0.1", "-p", str(self._port)]
        self._process = self._launch([sys.executable, "-m", "moto.server", *given])
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)
        if self._rights:
            self._make_users()

    def make_bucket(self, name: str) -> None:
        """Make a bucket. Idempotent."""
        self.client.create_bucket(Bucket=name)

    def names(self, bucket: str, folder: str) -> list[str]:
        """Return the keys of all objects below a folder."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{folder}/")
        return [str(each["Key"]) for page in pages for each in page.get("Contents", ())]

    def entries(self, bucket: str, folder: str) -> list[str]:
        """Return the names of objects and folders in a folder, these with a slash behind. Raises ``OSError``."""
        prefix = f"{folder}/"
        pages = self.client.get_paginator("list_objects_v2")
        found: list[str] = []
        with os_errors():
            for page in pages.paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
                found += [str(each["Prefix"]) for each in page.get("CommonPrefixes", ())]
                found += [str(each["Key"]) for each in page.get("Contents", ())]
        # Hadoop's object for the folder itself has no name in it.
        return [name.removeprefix(prefix) for name in found if name != prefix]

    def read(self, bucket: str, name: str) -> bytes | None:
        """Read an object; None where there is none. Raises ``OSError``."""
        with os_errors():
            try:
                found: bytes = self.client.get_object(Bucket=bucket, Key=name)["Body"].read()
            except self.client.exceptions.NoSuchKey:
                return None
        return found

    def uploads(self, bucket: str, prefix: str) -> list[str]:
        """Return the keys of uploads that are neither completed nor ended. Raises ``OSError``."""
        return open_uploads(self.client, bucket, prefix)

    def give(self, user: str, statements: Sequence[object]) -> None:
        """Give a user these rights, in place of those that he had."""
        self._put_policy(client_of(self.url, *self._keys[_ALL], service="iam"), user, statements)

    def _make_users(self) -> None:
        iam = client_of(self.url, service="iam")
        for name, statements in self._rights.items():
            iam.create_user(UserName=name)
            self._put_policy(iam, name, statements)
            made = iam.create_access_key(UserName=name)["AccessKey"]
            self._keys[name] = (made["AccessKeyId"], made["SecretAccessKey"])
        # From now on, it looks at the rights of whoever asks.
        asked = Request(  # noqa: S310  of this machine
            f"{self.url}/moto-api/reset-auth",
            data=b"0",
            headers={"Content-Type": "text/plain"},
            method="POST",
        )
        urlopen(asked, timeout=_CALL_S).close()  # noqa: S310  as above

    @staticmethod
    def _put_policy(iam: Any, user: str, statements: Sequence[object]) -> None:  # noqa: ANN401  of boto3, as above
        policy = {"Version": "2012-10-17", "Statement": list(statements)}
        iam.put_user_policy(UserName=user, PolicyName="own", PolicyDocument=json.dumps(policy))

    def _answers(self) -> bool:
        try:
            urlopen(f"{self.url}/moto-api/", timeout=_CALL_S).close()  # noqa: S310  of this machine
        except OSError:
            return False
        return True
