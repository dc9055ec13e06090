"""Where the checkpoints of a campaign's queries are: in a folder, or on a store that is started for the campaign.

A store is read by its own interface, with none of the code that is judged; what is audited is a copy of the
checkpoint, as anybody could make one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from onceonly.errors import UnavailableError
from onceonly.jars.locked import ensure_jars, spark_jars
from onceonly_proof.auditor.lake import below
from onceonly_proof.campaign.targets import Bucket, StoredDelta, StoredFiles, StoredIceberg
from onceonly_proof.campaign.values import FOLDER
from onceonly_proof.embedded.hdfs import NODES, EmbeddedHdfs
from onceonly_proof.embedded.moto import EmbeddedMoto
from onceonly_proof.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceonly_proof.campaign.targets import Target

_BUCKET = "checkpoints"
_AT = "campaign"


class CheckpointStore(Protocol):
    """What a campaign asks of the store of its checkpoints. Campaign's process."""

    conf: Mapping[str, str]
    """What a session is told that keeps checkpoints there."""
    dies: bool
    """Whether it has servers that may be killed, and come back with what they had."""

    def address(self, folder: Path) -> str:
        """Return the ``checkpointLocation`` of the round in a folder."""
        ...

    def newest(self, address: str, folder: str) -> int:
        """Return the highest number among the names in a folder of a checkpoint, -1 where there is none."""
        ...

    def text(self, address: str, name: str) -> str:
        """Return what a file of a checkpoint holds, nothing where it is not there or being written."""
        ...

    def beside(self, folder: Path, name: str) -> str:
        """Return the address of what lies beside the checkpoint of the round in a folder: a journal, or ranges."""
        ...

    def names(self, address: str) -> list[str]:
        """Return the names of files in a folder; none where it is not there, or nobody answers."""
        ...

    def data(self, address: str, name: str) -> bytes | None:
        """Return what a file in a folder holds; None where it is not there, or nobody answers."""
        ...

    def copy(self, address: str, into: Path) -> None:
        """Copy a checkpoint into a folder, which is not there yet. Raises ``UnavailableError``."""
        ...

    def targets(self) -> Mapping[str, Callable[[Path], Target]]:
        """Return what is written on it, too, and not in folders of this machine: as ``TARGETS``, by names of sinks."""
        ...

    def kill(self, which: float) -> None:
        """End a server of it with SIGKILL; ``which`` chooses among several, in [0, 1)."""
        ...

    def start(self) -> None:
        """Start what was killed, and wait until it answers. Raises ``SetupError``."""
        ...

    def close(self) -> None:
        """End it. Idempotent."""
        ...


class Folders:
    """Checkpoints in folders of this machine, where they are audited, too."""

    conf: Mapping[str, str] = {}
    dies = False

    def address(self, folder: Path) -> str:
        return str(folder / "checkpoint")

    def newest(self, address: str, folder: str) -> int:
        return _newest(self.names(f"{address}/{folder}"))

    def text(self, address: str, name: str) -> str:
        return _text(self.data(address, name))

    def beside(self, folder: Path, name: str) -> str:
        return str(folder / name)

    def names(self, address: str) -> list[str]:
        try:
            return os.listdir(address)  # noqa: PTH208  names alone
        except FileNotFoundError:
            return []

    def data(self, address: str, name: str) -> bytes | None:
        try:
            return (Path(address) / name).read_bytes()
        except OSError:
            return None

    def copy(self, address: str, into: Path) -> None:
        """It is there already."""

    def targets(self) -> Mapping[str, Callable[[Path], Target]]:
        return {}

    def kill(self, which: float) -> None:
        """There is no server."""

    def start(self) -> None:
        """There is no server."""

    def close(self) -> None:
        """There is no server."""


class _Served:
    """Checkpoints on a server, whose files are read by their path below all checkpoints."""

    dies = True

    def __init__(
        self, root: str, names: Callable[[str], list[str]], read: Callable[[str], bytes | None]
    ) -> None:
        self._root = root
        self._names = names
        self._read = read

    def address(self, folder: Path) -> str:
        # A round that was broken off is run again in a folder of another campaign.
        return f"{self._root}/{folder.parent.name}/{folder.name}"

    def newest(self, address: str, folder: str) -> int:
        return _newest(self.names(f"{address}/{folder}"))

    def text(self, address: str, name: str) -> str:
        return _text(self.data(address, name))

    def beside(self, folder: Path, name: str) -> str:
        return f"{self.address(folder)}-{name}"

    def names(self, address: str) -> list[str]:
        try:
            return self._names(self._path(address))
        except OSError:
            return []  # it may just have been killed

    def data(self, address: str, name: str) -> bytes | None:
        try:
            return self._read(f"{self._path(address)}/{name}")
        except OSError:
            return None

    def copy(self, address: str, into: Path) -> None:
        try:
            self._copy(self._path(address), into)
        except OSError as error:
            raise UnavailableError(
                f"{address} could not be copied, to be audited: {error}",
                next_step="see whether the machine is too busy for its store, then run the same command again",
            ) from error

    def targets(self) -> Mapping[str, Callable[[Path], Target]]:
        return {"files": lambda _folder: StoredFiles(self._root, self._names, self._read, self._left)}

    def _left(self, folder: str) -> list[str]:
        """Name what waits for its commit in a folder of files."""
        raise NotImplementedError

    def _copy(self, path: str, into: Path) -> None:
        into.mkdir()
        for name in self._names(path):
            if name.endswith("/"):
                self._copy(f"{path}/{name.rstrip('/')}", into / name)
                continue
            data = self._read(f"{path}/{name}")
            if data is None:
                raise FileNotFoundError(f"{path}/{name} is listed, and is not there")
            (into / name).write_bytes(data)

    def _path(self, address: str) -> str:
        return address.removeprefix(self._root + "/")


class _InBucket(_Served):
    """Checkpoints in a bucket, by ``s3a:``. ``names`` lists a folder of one, with a slash behind folders."""

    def __init__(self, server: EmbeddedS3 | EmbeddedMoto, names: Callable[[str, str], list[str]]) -> None:
        self._server = server
        server.start()
        server.make_bucket(_BUCKET)
        super().__init__(
            f"s3a://{_BUCKET}/{_AT}",
            lambda path: names(_BUCKET, f"{_AT}/{path}"),
            lambda name: server.read(_BUCKET, f"{_AT}/{name}"),
        )
        self.conf: Mapping[str, str] = _by_s3a(server.hadoop())

    def targets(self) -> Mapping[str, Callable[[Path], Target]]:
        bucket = Bucket(
            name=_BUCKET, folder=_AT, hadoop=self._server.hadoop(), names=self._names, read=self._read
        )
        return {
            **super().targets(),
            "delta": lambda _folder: StoredDelta(bucket),
            "iceberg": lambda folder: StoredIceberg(bucket, folder),
        }

    def _left(self, folder: str) -> list[str]:
        return self._server.uploads(_BUCKET, f"{_AT}/{folder}/")

    def close(self) -> None:
        self._server.close()


class OnS3(_InBucket):
    """Checkpoints on SeaweedFS."""

    def __init__(self, folder: Path) -> None:
        server = EmbeddedS3(folder)
        super().__init__(server, server.names)

    def kill(self, which: float) -> None:  # noqa: ARG002  there is one server
        self._server.kill()

    def start(self) -> None:
        self._server.start()


class OnMoto(_InBucket):
    """Checkpoints on an S3 server of another make, moto's, which has all in memory, so it is not killed."""

    dies = False

    def __init__(self, folder: Path) -> None:
        server = EmbeddedMoto(folder)
        super().__init__(server, server.entries)

    def kill(self, which: float) -> None:
        """It would forget everything."""

    def start(self) -> None:
        """It runs."""


class OnHdfs(_Served):
    """Checkpoints on HDFS."""

    def __init__(self, folder: Path) -> None:
        self._server = EmbeddedHdfs(folder)
        self._server.start()
        super().__init__(
            f"{self._server.url}/{_AT}",
            lambda path: self._server.names(f"{_AT}/{path}"),
            lambda name: self._server.read(f"{_AT}/{name}"),
        )
        self.conf: Mapping[str, str] = _hadoop(self._server.hadoop())

    def _left(self, folder: str) -> list[str]:
        return [
            name for name in below(self._names, f"{folder}/_onceonly/staging") if name.endswith(".staged")
        ]

    def kill(self, which: float) -> None:
        self._server.kill(NODES[int(which * len(NODES))])

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.close()


STORES: Final[Mapping[str, Callable[[Path], CheckpointStore]]] = {
    FOLDER: lambda _folder: Folders(),
    "s3": OnS3,
    "moto": OnMoto,
    "hdfs": OnHdfs,
}
"""By the word for it on the command line and in reports."""
JOURNALS: Final = "+journals"
"""What is behind such a word where journals and ranges are there, too."""


def _by_s3a(settings: Mapping[str, str]) -> dict[str, str]:
    jars = ensure_jars(used_by="store-s3a")
    return {**_hadoop(settings), "spark.jars": ",".join([spark_jars(), *map(str, jars)])}


def _hadoop(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"spark.hadoop.{name}": value for name, value in settings.items()}


def _text(data: bytes | None) -> str:
    return (data or b"").decode(errors="replace")


def _newest(names: list[str]) -> int:
    return max((int(name) for name in names if name.isdecimal()), default=-1)
