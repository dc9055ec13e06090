"""Files in a bucket of S3, by key: small ones whole, those of rows by uploads that are left open. Any process.

There are no folders: a folder is what keys begin with, so that none is made, and none has to be synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from onceonly.errors import SetupError
from onceonly.sinks.files.paths import FILE_BYTES_MAX, Room
from onceonly.stores.opened import open_store, open_uploads
from onceonly.stores.port import put_once
from onceonly.stores.rights import require_rights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onceonly.sinks.files.paths import RemotePath
    from onceonly.stores.objects import ObjectStore
    from onceonly.stores.uploads import S3Uploads

_KEY_BYTES_MAX = 1024


class ObjectFiles:
    """Small files of one bucket; fulfils ``onceonly.sinks.files.store.Files``. Several threads may use one.

    What fails stands in a sentence: ``UnavailableError``, ``ConfigurationError``.
    """

    def __init__(self, objects: ObjectStore, uploads: S3Uploads) -> None:
        self.objects = objects
        self.uploads = uploads

    @classmethod
    def of(cls, target: RemotePath) -> ObjectFiles:
        """Make the store of a target. Nothing is asked yet. Raises ``ConfigurationError``, ``SetupError``."""
        from onceonly.stores.objects import ObjectStore

        bucket = target.bucket
        objects = open_store(bucket)
        if not isinstance(objects, ObjectStore):
            raise SetupError(f"{target} is in no bucket", next_step="report this")
        return cls(objects, open_uploads(bucket))

    def below(self, folder: Path) -> ObjectStore:
        """Return the objects below a folder, by their names there."""
        return self.objects.below(key_of(folder))

    def make_folder(self, folder: Path) -> None:
        """Do nothing: there are none."""

    def sync_folder(self, folder: Path) -> None:
        """Do nothing: an object that is there is durable."""

    def read(self, path: Path) -> bytes | None:
        return self.objects.get(key_of(path))

    def put_if_absent(self, path: Path, data: bytes) -> bool:
        return self.put_once(path, data) == data

    def put_once(self, path: Path, data: bytes) -> bytes:
        """Put a small file, unless its name is taken; return what stands there."""
        while True:  # what was put here is removed by nobody who is at the same work
            standing = put_once(self.objects, key_of(path), data)
            if standing is not None:
                return standing

    def size(self, path: Path) -> int | None:
        found = self.objects.head(key_of(path))
        return None if found is None else found["size"]

    def idle(self, path: Path) -> float | None:
        return self.uploads.idle(key_of(path))

    def renew(self, path: Path) -> None:
        data = self.read(path)
        if data is not None:
            self.objects.replace(key_of(path), data)

    def names(self, folder: Path) -> list[str]:
        return self.objects.entries(prefix_of(folder))

    def delete(self, path: Path) -> None:
        self.objects.delete(key_of(path))

    def require_rights(self, places: Sequence[Path], *, user: int | None, who: str) -> str:  # noqa: ARG002  a bucket has its own
        # Uploads of rows are begun below the target.
        target, *own = places
        bucket = cast("RemotePath", target).bucket
        return require_rights(bucket, [prefix_of(target)], in_parts=True) or require_rights(
            bucket, [prefix_of(place) for place in own]
        )

    def room(self, target: Path) -> Room:
        return Room(folders=_KEY_BYTES_MAX - len(prefix_of(target).encode()) - len("/") - FILE_BYTES_MAX)


def key_of(path: Path) -> str:
    """Return the key of a place: what follows scheme and bucket."""
    return "/".join(path.parts[2:])


def prefix_of(folder: Path) -> str:
    """Return what the keys of all that is in a folder begin with; nothing for the bucket itself."""
    key = key_of(folder)
    return f"{key}/" if key else ""
