"""A store of objects: S3 and what imitates it, Google Cloud Storage, Azure Storage. By ``obstore``.

A put has a condition, that nothing has its name, which the store itself holds. An object is there as a whole or not at
all, and durable when it is there, so that nothing is synced and nothing has to be cleared away.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from onceonly.errors import UnavailableError
from onceonly.stores import answers
from onceonly.stores.address import Kind
from onceonly.stores.port import PutUnknownError
from onceonly.stores.probing import probe, unfit
from onceonly.stores.streams import PART_BYTES, ObjectStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from obstore import ObjectMeta, UpdateVersion
    from obstore.store import ObjectStore as Client

    from onceonly.errors import ConfigurationError, OnceonlyError
    from onceonly.stores.address import Address

log = logging.getLogger("onceonly")

_DENIED = (PermissionDeniedError, UnauthenticatedError)
_TAKEN = (AlreadyExistsError, PreconditionError, NotModifiedError)
_COPIED_MIN = 1 << 20
"""From so many bytes on a copy by the store, and a look at it, are cheaper than to send them."""
_NO_VERSION = frozenset({None, "", "null"})


class ObjectStore:
    """Objects below one address; fulfils ``onceonly.stores.port.RewritableStore``. Several threads may use one."""

    abreast = 64

    def __init__(self, client: Client, address: Address) -> None:
        self._client = client
        self._address = address
        self._keeps_versions = False

    def where(self, name: str) -> str:
        return self._address.below(name).text

    def below(self, folder: str) -> ObjectStore:
        """Return the objects in a folder of this place, by the same client."""
        return ObjectStore(self._client, self._address.below(folder))

    def prepare(self, folders: Iterable[str]) -> None:  # noqa: ARG002  there are no folders to make
        """See that the store holds the condition of a put, and grants what is needed. Idempotent.

        Raises ``ConfigurationError`` for a store that does not, ``UnavailableError``.
        """
        probe(self, place=self._address.text)
        if self._keeps_versions:
            log.warning(
                "The store of %s keeps a version of each object that is replaced or removed, of a query that runs all "
                "day some ten thousand. Let a lifecycle rule end noncurrent versions there.",
                self._address.text,
            )

    def put_if_absent(
        self, name: str, data: bytes, *, before_publish: Callable[[], None] | None = None
    ) -> bool:
        if before_publish is not None:
            before_publish()
        try:
            done = obstore.put(self._client, self._path(name), data, mode="create", use_multipart=False)
        except _TAKEN as error:
            # Azure says the same of a name that is taken. Where nothing stands, two came at the same moment, and it
            # may be that neither was first.
            if answers.is_conflict(str(error)) and self.get(name) is None:
                message = f"{self.where(name)} was being put by another at the same moment"
                raise PutUnknownError(message) from None
            return False
        except FileNotFoundError as error:
            raise self._refusal(error, name, "put") from None
        except NotSupportedError:
            raise self._unfit() from None
        except BaseError as error:
            if "501 Not Implemented" in str(error):
                raise self._unfit() from None
            if isinstance(error, _DENIED) or answers.cause(error) is not None:
                raise self._refusal(error, name, "put") from None
            # Busy, broken off, never answered: it may have been put all the same.
            raise PutUnknownError(answers.reason(error)) from None
        # Google Cloud Storage numbers what it does not keep, too.
        self._keeps_versions = self._address.kind is not Kind.GCS and done["version"] not in _NO_VERSION
        return True

    def replace(self, name: str, data: bytes) -> None:
        try:
            obstore.put(self._client, self._path(name), data, mode="overwrite", use_multipart=False)
        except (BaseError, FileNotFoundError) as error:
            raise self._refusal(error, name, "put") from None

    def take(self, other: ObjectStore, name: str) -> bytes | None:
        """Put what another place has under a name here, under the same; return its bytes, None where there are none.

        What is large the store copies itself, where both are in one bucket. It is believed by length and tag alone:
        what imitates S3 may take a copy for a put of nothing. Operator's process. Raises ``UnavailableError``.
        """
        data, tag = other._read(name)
        if data is not None and not (
            len(data) >= _COPIED_MIN and self._copied(other, name, (len(data), tag))
        ):
            self.replace(name, data)
        return data

    def _copied(self, other: ObjectStore, name: str, known: tuple[int, str | None]) -> bool:
        ours, theirs = self._address, other._address
        if (ours.kind, ours.container, ours.host) != (theirs.kind, theirs.container, theirs.host):
            return False
        try:
            obstore.copy(self._client, other._path(name), self._path(name))
            found = obstore.head(self._client, self._path(name))
        except (BaseError, FileNotFoundError) as error:
            log.debug("%s was not copied by its store: %s", self.where(name), answers.gist(error))
            return False
        return (found["size"], found["e_tag"] or None) == known

    def get(self, name: str) -> bytes | None:
        return self._read(name)[0]

    def _read(self, name: str) -> tuple[bytes | None, str | None]:
        """Return the bytes of an object, None where there is none, and the store's tag of them."""
        try:
            found = obstore.get(self._client, self._path(name))
            data = bytes(found.bytes())
        except FileNotFoundError as error:
            if answers.lacks_bucket(str(error)):
                raise self._refusal(error, name, "read") from None
            return None, None
        except BaseError as error:
            raise self._refusal(error, name, "read") from None
        if len(data) != found.meta["size"]:
            raise UnavailableError(
                f"{self.where(name)} has {found.meta['size']} bytes, and {len(data)} of them arrived",
                next_step="see to the network between, and start the query again",
            )
        return data, found.meta["e_tag"]

    def get_first(self, name: str, size: int) -> bytes | None:
        try:
            return bytes(obstore.get_range(self._client, self._path(name), start=0, length=size))
        except FileNotFoundError as error:
            if answers.lacks_bucket(str(error)):
                raise self._refusal(error, name, "read") from None
            return None
        except BaseError as error:
            if "range" in str(error).lower():  # of what is empty, or of a server that knows no parts
                data = self.get(name)
                return None if data is None else data[:size]
            raise self._refusal(error, name, "read") from None

    def list_names(self, folder: str) -> list[str]:
        begin = self._path(folder)
        try:
            names = (
                meta["path"].removeprefix(begin)
                for page in obstore.list(self._client, begin.rstrip("/") or None)
                for meta in page
                if meta["path"].startswith(begin)  # some file systems over objects put a folder's own name
            )
            return [folder + name for name in names if "/" not in name and not name.startswith(".")]
        except FileNotFoundError as error:
            return self._nothing(error, folder)
        except BaseError as error:
            raise self._refusal(error, folder, "listed") from None

    def list_folders(self, folder: str) -> list[str]:
        try:
            found = obstore.list_with_delimiter(self._client, self._path(folder).rstrip("/") or None)
        except FileNotFoundError as error:
            return self._nothing(error, folder)
        except BaseError as error:
            raise self._refusal(error, folder, "listed") from None
        return [each.rpartition("/")[2] for each in found["common_prefixes"]]

    def tree(self, folder: str) -> list[str]:
        sizes = self.sizes(folder)
        folders = {above for name in sizes for above in _above(name)}
        found = []
        for name, size in sizes.items():
            if any(part.startswith(".") for part in name.split("/")):
                continue
            # For a folder, Hadoop puts an empty one whose name ends with a slash: listed without it, and not there so.
            if size or (name not in folders and self.head(name) is not None):
                found.append(name)
        return found

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the length of each object below a folder (``day/``), by its name, unordered."""
        begin, above = self._path(folder), self._path("")
        try:
            return {
                meta["path"].removeprefix(above): meta["size"]
                for page in obstore.list(self._client, begin.rstrip("/") or None)
                for meta in page
                if meta["path"].startswith(begin)
            }
        except FileNotFoundError as error:
            return dict.fromkeys(self._nothing(error, folder), 0)
        except BaseError as error:
            raise self._refusal(error, folder, "listed") from None

    def begin(self, name: str) -> ObjectStream:
        """Begin an object that is there once it is closed, put over whatever has its name. ``drop`` throws it away."""
        file = obstore.open_writer(self._client, self._path(name), buffer_size=PART_BYTES, max_concurrency=1)
        return ObjectStream(
            file,
            failed=lambda error: self._refusal(error, name, "put"),
            remove=lambda: self.delete(name),
        )

    def entries(self, folder: str) -> list[str]:
        """Return the names of objects and folders in a folder, without it, unordered."""
        begin = self._path(folder)
        try:
            found = obstore.list_with_delimiter(self._client, begin.rstrip("/") or None)
        except FileNotFoundError as error:
            return self._nothing(error, folder)
        except BaseError as error:
            raise self._refusal(error, folder, "listed") from None
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return [path.removeprefix(begin) for path in paths if path.startswith(begin) and path != begin]

    def head(self, name: str) -> ObjectMeta | None:
        """Return length and age of an object, None where nothing has this name."""
        try:
            return obstore.head(self._client, self._path(name))
        except FileNotFoundError as error:
            if answers.lacks_bucket(str(error)):
                raise self._refusal(error, name, "read") from None
            return None
        except BaseError as error:
            raise self._refusal(error, name, "read") from None

    def any_name(self, folder: str) -> str | None:
        """Return the name of an object below a folder (``day/``), None where there is none."""
        begin, above = self._path(folder), self._path("")
        try:
            for page in obstore.list(self._client, begin.rstrip("/") or None):
                for meta in page:
                    if meta["path"].startswith(begin):
                        return str(meta["path"].removeprefix(above))
        except FileNotFoundError as error:
            self._nothing(error, folder)
        except BaseError as error:
            raise self._refusal(error, folder, "listed") from None
        return None

    def may_put(self, name: str) -> bool:
        """See that an object may be put, by a put over a version of it that there never was: none is carried out.

        Of Google Cloud Storage, which looks at rights before it looks for the version. ``name`` is one that nothing
        has; false where it cannot be seen. Raises ``ConfigurationError`` that names the right.
        """
        never: UpdateVersion = {"version": "1"}
        try:
            obstore.put(self._client, self._path(name), b"", mode=never, use_multipart=False)
        except _TAKEN:
            return True
        except (*_DENIED, FileNotFoundError) as error:
            raise self._refusal(error, name, "put") from None
        except BaseError:
            return False
        self.delete(name)  # what imitates a store may know no such condition
        return True

    def delete(self, name: str) -> None:
        try:
            obstore.delete(self._client, self._path(name))
        except FileNotFoundError as error:
            if answers.lacks_bucket(str(error)):
                raise self._refusal(error, name, "removed") from None
        except BaseError as error:
            raise self._refusal(error, name, "removed") from None

    def sync(self, name: str) -> None:
        """An object that is there is durable."""

    def drop_leftovers(self, dead: Callable[[str], bool]) -> None:
        """A put that is broken off leaves nothing behind."""

    def _nothing(self, error: FileNotFoundError, folder: str) -> list[str]:
        if answers.lacks_bucket(str(error)):
            raise self._refusal(error, folder, "listed") from None
        return []

    def _path(self, name: str) -> str:
        return f"{self._address.path}/{name}" if self._address.path else name

    def _refusal(self, error: BaseException, name: str, verb: str) -> OnceonlyError:
        return answers.refusal(
            error,
            kind=self._address.kind,
            where=self.where(name),
            verb=verb,
            denied=isinstance(error, _DENIED),
        )

    def _unfit(self) -> ConfigurationError:
        return unfit(self._address.text, "has no put with a condition")


def _above(path: str) -> Iterator[str]:
    """Yield the folders that a path is in. Pure."""
    while path := path.rpartition("/")[0]:
        yield path
