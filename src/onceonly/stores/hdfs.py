"""A store on HDFS: a file under a temporary name, then a rename that the name node refuses where the name is taken.

``CREATE`` without overwriting would give the name before the bytes are there, so that a writer who dies leaves a torn
file. A file is durable when it is closed, as far as HDFS goes: on as many data nodes as it must have
(``dfs.namenode.replication.min``), on their disks where ``dfs.datanode.synconclose`` is set.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from onceonly.errors import OnceonlyError, UnavailableError
from onceonly.stores.hdfs_answers import MISSING, RefusedError, next_step
from onceonly.stores.port import PutUnknownError
from onceonly.stores.probing import PROBES, probe
from onceonly.stores.temporaries import name_of, temporary_of
from onceonly.stores.webhdfs import BrokenOffError, WebHdfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from onceonly.stores.access import Hadoop
    from onceonly.stores.address import Address

_OLD_MS = 3600_000


def require_rights(web: WebHdfs, folders: Sequence[str], *, of: str) -> str:
    """See that whoever has made ``of`` may put files in folders, or where they would be; return why it cannot be seen.

    A name node answers of nobody but who asks. Only looks. Raises as ``WebHdfs.ask``.
    """
    try:
        me, job = web.user(), (web.status(of) or {}).get("owner", "not known")
        if me != job:
            return f"to HDFS this command's user is {me}, and the job's {job}: ask as that one"
        for folder in map(PurePosixPath, folders):
            found = next(each for each in (folder, *folder.parents) if web.status(str(each)) is not None)
            web.ask("GET", "CHECKACCESS", str(found), fsaction="-wx")
    except RefusedError as error:
        return f"the name node does not tell what may be done in {folders[0]}: {error}"
    return ""


class HdfsStore:
    """Files below one address; fulfils ``onceonly.stores.port.RewritableStore``. Several threads may use one."""

    abreast = 16  # each is a connection of its own to a name node that all share

    def __init__(self, web: WebHdfs, address: Address, *, private: bool = False) -> None:
        self._web = web
        self._address = address
        self._permission = "600" if private else ""

    @classmethod
    def at(cls, address: Address, hadoop: Hadoop, *, private: bool = False) -> HdfsStore:
        """Make the store of an address. Nothing is asked yet. Raises ``ConfigurationError``."""
        return cls(WebHdfs.of(address, hadoop), address, private=private)

    def where(self, name: str) -> str:
        return self._address.below(name).text

    def prepare(self, folders: Iterable[str]) -> None:  # noqa: ARG002  a put makes its folder
        """See that the name node keeps a name for the first, and permits what is needed. Idempotent.

        Raises ``ConfigurationError``, ``UnavailableError``.
        """
        probe(self, place=self._address.text)

    def require_rights(self, folders: Sequence[str], *, of: str) -> str:
        """As the function of this name."""
        return require_rights(self._web, [self._path(each) for each in folders], of=self._path(of))

    def put_if_absent(
        self, name: str, data: bytes, *, before_publish: Callable[[], None] | None = None
    ) -> bool:
        temporary = self._written(name, data)
        is_put = False
        try:
            if before_publish is not None:
                before_publish()
            is_put = self._rename(temporary, name)
        finally:
            if not is_put:  # else it has another name
                self._drop([temporary])
        return is_put

    def replace(self, name: str, data: bytes) -> None:
        temporary = self._written(name, data)
        try:
            self._move_over(temporary, name, data)
        except RefusedError as error:
            # A rename that was asked twice finds its file gone.
            if error.name != MISSING or self.get(name) != data:
                raise self._unavailable(name, "put", error) from error

    def get(self, name: str) -> bytes | None:
        return self._read(name)

    def get_first(self, name: str, size: int) -> bytes | None:
        return self._read(name, length=str(size))

    def _read(self, name: str, **more: str) -> bytes | None:
        try:
            return self._web.read(self._path(name), **more)
        except RefusedError as error:
            if error.name == MISSING:
                return None
            raise self._unavailable(name, "read", error) from error

    def list_names(self, folder: str) -> list[str]:
        return [
            folder + each["pathSuffix"]
            for each in self._entries(folder)
            if each["type"] == "FILE" and not each["pathSuffix"].startswith(".")
        ]

    def list_folders(self, folder: str) -> list[str]:
        return [
            str(each["pathSuffix"])
            for each in self._entries(folder)
            if each["type"] == "DIRECTORY" and not each["pathSuffix"].startswith(".")
        ]

    def tree(self, folder: str) -> list[str]:
        found: list[str] = []
        for each in self._entries(folder):
            name = str(each["pathSuffix"])
            if not name.startswith("."):
                path = folder + name
                found += self.tree(f"{path}/") if each["type"] == "DIRECTORY" else [path]
        return found

    def delete(self, name: str) -> None:
        try:
            self._web.ask("DELETE", "DELETE", self._path(name), recursive="false")
        except RefusedError as error:
            if error.name != MISSING:
                raise self._unavailable(name, "removed", error) from error

    def sync(self, name: str) -> None:
        """Make durable what another has renamed: a name node shows a rename just before its log has it.

        A further entry in that log, of the very file, is answered when all before it are durable.
        """
        try:
            status = self._status(name)
            if status is not None:
                changed = str(status["modificationTime"])
                self._web.ask("PUT", "SETTIMES", self._path(name), modificationtime=changed)
        except RefusedError as error:
            raise self._unavailable(name, "made durable", error) from error

    def drop_leftovers(self, dead: Callable[[str], bool]) -> None:
        now = time.time() * 1000
        for folder in ("", *(f"{each}/" for each in self.list_folders(""))):
            entries = list(self._entries(folder))
            taken = {each["pathSuffix"] for each in entries}
            for each in entries:
                short = name_of(each["pathSuffix"])
                if short is None:
                    continue
                # A living writer that loses its temporary file here would find its name taken anyway. One that only
                # tries the store has no name to take: it is left alone until it is old.
                old = folder == PROBES and now - each["modificationTime"] > _OLD_MS
                if old or short in taken or dead(folder + short):
                    with contextlib.suppress(OnceonlyError):
                        self.delete(folder + each["pathSuffix"])

    def _written(self, name: str, data: bytes) -> str:
        """Write a temporary file, whole; return its name. What tries that broke off left is removed."""
        tried: list[str] = []

        def another() -> str:
            tried.append(temporary_of(name))
            return self._path(tried[-1])

        left = tried
        try:
            self._web.write(another, data, permission=self._permission)
            left = tried[:-1]
        except RefusedError as error:
            raise self._unavailable(name, "written", error) from error
        finally:
            self._drop(left)
        return tried[-1]

    def _rename(self, temporary: str, name: str) -> bool:
        try:
            return self._web.rename(self._path(temporary), self._path(name))
        except BrokenOffError as error:
            raise PutUnknownError(str(error)) from error
        except RefusedError as error:
            # A newer driver may have taken the name and cleared the temporary file away.
            if error.name == MISSING and self._status(name) is not None:
                return False
            raise self._unavailable(name, "put", error) from error

    def _move_over(self, temporary: str, name: str, data: bytes) -> None:
        """Rename what holds ``data``, over what has the name; asked again until it is answered."""
        if self._renamed_over(temporary, name):
            return
        # HttpFS has the older rename, which goes over nothing, and says no as well where it was asked twice.
        try:
            if self.get(name) != data:
                self.delete(name)  # for a moment, nothing has the name
                if not self._renamed_over(temporary, name) and self._status(name) is None:
                    raise RefusedError("RenameRefused", "HDFS would not rename to a name that is free")
        finally:
            self._drop([temporary])

    def _drop(self, temporaries: Sequence[str]) -> None:
        """Remove temporary files while the name nodes answer; what stays is a leftover."""
        with contextlib.suppress(OnceonlyError):
            for each in temporaries:
                self.delete(each)

    def _renamed_over(self, temporary: str, name: str) -> bool:
        source, destination = self._path(temporary), self._path(name)
        answer = self._web.ask("PUT", "RENAME", source, destination=destination, renameoptions="OVERWRITE")
        return answer.get("boolean") is not False

    def _status(self, name: str) -> dict[str, Any] | None:
        try:
            return self._web.status(self._path(name))
        except RefusedError as error:
            raise self._unavailable(name, "looked at", error) from error

    def _entries(self, folder: str) -> Iterator[dict[str, Any]]:
        try:
            found = self._web.ask("GET", "LISTSTATUS", self._path(folder))
        except RefusedError as error:
            if error.name == MISSING:
                return
            raise self._unavailable(folder, "listed", error) from error
        yield from found["FileStatuses"]["FileStatus"]

    def _path(self, name: str) -> str:
        return f"/{self._address.path}/{name}".replace("//", "/").rstrip("/") or "/"

    def _unavailable(self, name: str, verb: str, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"{self.where(name)} could not be {verb}: {error}; nothing was changed",
            next_step=next_step(error),
        )
