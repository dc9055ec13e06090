"""A target in a bucket of S3. A file waits as an upload that is left open, and a commit completes it.

Beside the manifests, in the folder of temporary files, each transaction has two small objects::

    {root}/{transaction}.open       it was begun: put before its first upload
    {root}/{transaction}.mark       ``begun``: from now on uploads are completed; ``void``: none ever will be

Whoever commits first sees that all uploads are there, and only then puts the mark; the name is given once. So without a
mark nobody has completed anything: if an upload is gone then, its rows are lost, and the mark says so for good. Under
the mark ``begun``, an upload that is there is still to be completed. One that is not there was completed, where the
object has the transaction's token or a manifest lists it; where a reader has taken the object away before there was a
manifest, it cannot be told from an upload that somebody ended, and is in doubt.
"""

from __future__ import annotations

import errno
import io
import logging
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from onceonly import background
from onceonly.errors import OnceonlyError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Lost, Outcome
from onceonly.ports import Leftover
from onceonly.ports.standing import Stands
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.committer import not_mounted
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.objects import key_of, prefix_of
from onceonly.sinks.files.paths import manifest_folder, staging_folder
from onceonly.sinks.files.prepared import Prepared, Upload
from onceonly.sinks.files.staging.leftovers import SETTLED, own_folder
from onceonly.sinks.files.staging.staged import TRANSACTION, epoch_of
from onceonly.sinks.files.targets import trial
from onceonly.sinks.files.targets.port import UnsureError
from onceonly.stores.uploads import Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.ports import QueryContext
    from onceonly.sinks.files.manifests.manifest import DataFile
    from onceonly.sinks.files.objects import ObjectFiles
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.stores.uploads import S3Uploads

T = TypeVar("T")
log = logging.getLogger("onceonly")

OPEN_MAX = 8
"""How many uploads of one attempt are open at a time: each keeps a part in memory."""
PART_BYTES = 8 << 20
_THREADS_MAX = 8
_OPEN, _MARK = ".open", ".mark"
_BEGUN, _VOID = b"begun", b"void"


class BucketTarget:
    """A target in a bucket; fulfils ``onceonly.sinks.files.targets.port.Target``."""

    def __init__(self, store: ObjectFiles, options: FilesOptions) -> None:
        self.files = store
        self._options = options
        self._shown: dict[str, set[str]] = {}
        """What this process has completed, by transaction until that is tidied up: a reader may have taken it since."""

    def make_ready(self, context: QueryContext) -> bool:  # noqa: ARG002  no folder of a query's own is made
        trial.run(self.files, self._options.target)
        return False

    def stage(self, query: str, sink: str, transaction: str) -> UploadStage:
        root = staging_folder(self._options.staging, query, sink)
        return UploadStage(self.files, root / transaction, self._options.target)

    def commit(self, prepared: Prepared) -> Outcome:
        mark = _mark(prepared.staging)
        standing, gone, is_kept = background.at_once(
            self.files.objects.abreast,
            lambda: self.files.read(mark),
            lambda: self._gone(prepared),
            lambda: self.files.size(_open(prepared.staging)) is not None,
        )
        is_first = standing is None
        if is_first and gone:  # perhaps by another driver, who puts the mark before
            standing = self.files.read(mark)
        if standing is None:
            if (gone or not is_kept) and self._was_committed(prepared, is_kept=is_kept):
                return AlreadyCommitted()
            standing = self.files.put_once(mark, _VOID if gone else _BEGUN)
        if standing == _VOID:
            self._end(prepared)
            return Lost(
                f"an upload of transaction {prepared.transaction} was ended before it was completed, and "
                f"{mark} keeps everybody from completing the others"
            )
        seen = is_first and not gone  # whoever saw all of them a moment ago need not look again
        found = self._each(
            prepared, lambda prepared, file, upload: self._show(prepared, file, upload, seen=seen)
        )
        return Committed() if any(found) else AlreadyCommitted()

    def published(self, prepared: Prepared) -> list[DataFile]:
        begun = self.files.read(_mark(prepared.staging)) == _BEGUN

        def is_shown(_: Prepared, file: DataFile, upload: Upload) -> bool:
            key = self._key(prepared, file)
            if self._is_ours(prepared, file) or (begun and not self._uploads.stands(key, upload.id)):
                return True
            self._uploads.end(key, upload.id)
            return False

        shown = self._each(prepared, is_shown)
        return [file for file, is_there in zip(prepared.files, shown, strict=True) if is_there]

    def standing(self, prepared: Prepared) -> tuple[Stands, str]:
        is_kept = self.files.size(_open(prepared.staging)) is not None
        mark = self.files.read(_mark(prepared.staging))
        shown = self._each(prepared, lambda _, file, _upload: self._is_ours(prepared, file))
        objects = f"{sum(shown)} of its {len(shown)} objects are there"
        if mark == _VOID:
            return Stands.GONE, f"{_mark(prepared.staging)} keeps everybody from completing it; {objects}"
        if all(shown):
            return Stands.COMMITTED, f"{objects}, and the manifest of its epoch is yet to come"
        if any(shown) or mark is not None:
            return Stands.UNKNOWN, f"{objects}: a commit was broken off, and only a commit ends it"
        if is_kept:
            return Stands.OPEN, f"its uploads are open, as {_open(prepared.staging)} says; {objects}"
        newest = Ledger(self.files, prepared.manifests).newest()
        if newest is not None and newest >= epoch_of(prepared.transaction):
            return Stands.UNKNOWN, f"{objects}, and the manifests have come to chk-{newest}"
        return Stands.GONE, f"{objects}, no manifest lists them, and no upload is open"

    def hindrance(self, prepared: Prepared) -> str:  # noqa: ARG002  of an upload that was ended a commit gives proof
        return ""

    def recover(self, context: QueryContext) -> list[Leftover]:
        root = staging_folder(self._options.staging, context.query, context.sink)
        if read_token(self.files, self._options.target) is None:
            raise UnavailableError(
                not_mounted(self._options.target), next_step="see to this bucket, and start the query again"
            )
        manifests = manifest_folder(self._options.target, context.query, context.sink)
        newest = Ledger(self.files, manifests).newest()
        names = set(self.files.names(root))
        found = []
        for transaction in sorted({name.removesuffix(_OPEN).removesuffix(_MARK) for name in names}):
            if not TRANSACTION.fullmatch(transaction):
                continue
            epoch = epoch_of(transaction)
            marked = transaction + _MARK in names
            settled = marked and newest is not None and newest >= epoch
            is_begun = marked and not settled and self.is_begun(root / transaction)
            # Of those that are begun, a store that lists the uploads of whole keys only tells none.
            is_open = not marked or (is_begun and any(self._listed(transaction)))
            found.append(
                Leftover(
                    transaction=SETTLED + transaction if settled else transaction,
                    data={"staging": str(root / transaction)},
                    epoch=epoch,
                    is_open=is_open,
                    is_decided=is_begun and context.guarantee is not Guarantee.AT_LEAST_ONCE,
                )
            )
        return found

    def is_begun(self, folder: Path) -> bool:
        return self.files.read(_mark(folder)) == _BEGUN

    def by_hand(self, folder: Path) -> tuple[float, str]:
        unique = folder.name.rpartition("-")[2]
        note, mark = _open(folder), _mark(folder)
        idle_s = self.files.idle(mark)
        return (self.files.idle(note) or 0.0) if idle_s is None else idle_s, (
            f"ending the uploads whose keys have -{unique}- in them (aws s3api abort-multipart-upload), and then "
            f"deleting {note}{'' if idle_s is None else f' and {mark}'}, does"
        )

    def abort(self, handle: Handle, *, root: Path | None) -> None:
        folder, transaction = own_folder(self._options, handle, root)
        # What is called settled may be void: whoever gave it up could not end its uploads just then.
        is_known = self._shown.pop(transaction, None) is not None
        if handle.transaction == transaction or (not is_known and self.files.read(_mark(folder)) == _VOID):
            is_kept = self.files.size(_open(folder)) is not None
            # Whoever committed it meanwhile has put the other word.
            mark = _mark(folder)
            standing = self.files.put_once(mark, _VOID) if is_kept else self.files.read(mark)
            if standing != _VOID:
                return
            if is_kept and "files" in handle.data:
                self._end(Prepared.of(handle))
            elif is_kept:
                for key, upload in self._listed(transaction):
                    self._uploads.end(key, upload)
        # The mark last: while it is there, the next sweep comes back.
        self.files.delete(_open(folder))
        self.files.delete(_mark(folder))

    @property
    def _uploads(self) -> S3Uploads:
        return self.files.uploads

    def _key(self, prepared: Prepared, file: DataFile) -> str:
        return key_of(prepared.target / file.path)

    def _each(self, prepared: Prepared, work: Callable[[Prepared, DataFile, Upload], T]) -> list[T]:
        pairs = list(zip(prepared.files, prepared.uploads, strict=True))
        return background.spread(
            "onceonly-upload", lambda pair: work(prepared, *pair), pairs, threads_max=_THREADS_MAX
        )

    def _gone(self, prepared: Prepared) -> bool:
        """Tell whether an upload is not there any more."""
        stands = self._each(
            prepared, lambda _, file, upload: self._uploads.stands(self._key(prepared, file), upload.id)
        )
        return not all(stands)

    def _was_committed(self, prepared: Prepared, *, is_kept: bool) -> bool:
        """Tell whether a transaction without a mark, of which something else is missing, was committed and tidied up.

        ``is_kept`` says that it was begun here, and not tidied up. Raises ``UnsureError`` where it may have been.
        """
        shown = self._each(prepared, lambda _, file, _upload: self._is_ours(prepared, file))
        epoch = epoch_of(prepared.transaction)
        ledger = Ledger(self.files, prepared.manifests)
        listed = ledger.listed(epoch) or frozenset()
        missing = [
            file
            for file, is_there in zip(prepared.files, shown, strict=True)
            if not is_there and file not in listed
        ]
        if not missing:
            return True
        newest = ledger.newest()
        # Nobody has tidied it up, nor come further: then nobody has committed it, either.
        if is_kept and not any(shown) and not listed and (newest is None or newest < epoch):
            return False
        raise UnsureError(
            f"{prepared.target / missing[0].path} is not there and no manifest lists it, and what was noted of it in "
            f"{prepared.staging.parent} is gone"
        )

    def _show(self, prepared: Prepared, file: DataFile, upload: Upload, *, seen: bool) -> bool:
        """Let an object come into sight, unless it did; say whether it was this call that did it."""
        shown = self._shown.setdefault(prepared.transaction, set())
        if upload.id in shown:
            return False
        key = self._key(prepared, file)
        said = Completion.GONE
        if seen or self._uploads.stands(key, upload.id):
            said = self._uploads.complete(key, upload.id, upload.parts)
        if said is Completion.DONE:
            shown.add(upload.id)
            return True
        if self._is_ours(prepared, file):
            return False
        if said is Completion.TAKEN and self._uploads.stands(key, upload.id):
            raise OSError(
                errno.EAGAIN, "the name was taken and is free again", str(prepared.target / file.path)
            )
        listed = Ledger(self.files, prepared.manifests).listed(epoch_of(prepared.transaction))
        if listed is not None and file in listed:
            return False
        raise UnsureError(
            f"neither {prepared.target / file.path} nor its upload is there, and no manifest lists it: it was "
            "committed and taken away, or somebody ended the upload"
        )

    def _is_ours(self, prepared: Prepared, file: DataFile) -> bool:
        """Tell whether the object is the one that was prepared. Raises ``UnsureError`` for another one."""
        found = self._uploads.look(self._key(prepared, file))
        if found is None:
            return False
        if (found.bytes, found.token) != (file.bytes, token_of(prepared.transaction, file.path)):
            raise UnsureError(
                f"{prepared.target / file.path} has other content than was prepared: something else wrote it"
            )
        return True

    def _end(self, prepared: Prepared) -> None:
        self._each(prepared, lambda _, file, upload: self._uploads.end(self._key(prepared, file), upload.id))

    def _listed(self, transaction: str) -> Iterator[tuple[str, str]]:
        """List the open uploads of an attempt without its handle: the names of its files say whose they are."""
        unique = f"-{transaction.rpartition('-')[2]}-"
        for key, upload in self._uploads.standing(prefix_of(self._options.target)):
            if unique in key.rpartition("/")[2]:
                yield key, upload


class UploadStage:
    """The uploads of one attempt; fulfils ``onceonly.sinks.files.targets.port.Stage``."""

    open_max = OPEN_MAX

    def __init__(self, store: ObjectFiles, folder: Path, target: Path) -> None:
        self.folder = folder
        self._store = store
        self._target = target
        self._begun: dict[str, Body] = {}

    def begin(self) -> None:
        self._store.put_once(_open(self.folder), b"")

    def see(self) -> None:
        """Ask nobody: an upload that was ended takes no part, and ``prepare`` looks."""

    def is_shared(self) -> bool:
        """Say yes: there are no folders that could be missing."""
        return True

    def create(self, path: str) -> BinaryIO:
        key = key_of(self._target / path)
        upload = self._store.uploads.begin(key, token_of(self.folder.name, path))
        body = self._begun[path] = Body(self._store.uploads, key, upload)
        return cast("BinaryIO", body)

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def prepare(self, files: Sequence[DataFile]) -> tuple[Upload, ...]:
        if self._store.size(_open(self.folder)) is None:
            raise FileNotFoundError(errno.ENOENT, "it was removed", str(_open(self.folder)))
        return tuple(self._begun[file.path].prepared for file in files)

    def drop(self) -> None:
        # What cannot be ended is left to the next sweep, with the note that leads it there.
        ended = [body.end() for body in self._begun.values()]
        if all(ended):
            self._store.delete(_open(self.folder))


class Body(io.RawIOBase):
    """The bytes of one object, sent a part at a time. Closing sends the last part, and leaves the upload open."""

    def __init__(self, uploads: S3Uploads, key: str, upload: str) -> None:
        self._uploads = uploads
        self._key = key
        self._upload = upload
        self._waiting = bytearray()
        self._parts: list[str] = []
        self._ended = False

    @property
    def prepared(self) -> Upload:
        """What completes it."""
        return Upload(self._upload, tuple(self._parts))

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401  any buffer
        """Take all of it."""
        piece = memoryview(data).cast("B")
        self._waiting += piece
        while len(self._waiting) >= PART_BYTES:
            self._send(PART_BYTES)
        return len(piece)

    def close(self) -> None:
        """Send what waits, as the last part."""
        if self.closed:
            return
        try:
            if not self._ended and (self._waiting or not self._parts):
                self._send(len(self._waiting))
        finally:
            super().close()

    def end(self) -> bool:
        """End the upload, best effort; say whether it was done."""
        self._ended = True
        try:
            self._uploads.end(self._key, self._upload)
        except OnceonlyError as error:
            log.warning("The upload of %s is left to the next sweep: %s", self._key, error.what)
            return False
        return True

    def _send(self, size: int) -> None:
        part = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._parts.append(self._uploads.send(self._key, self._upload, len(self._parts) + 1, part))


def token_of(transaction: str, path: str) -> str:
    """Return what the metadata of an object say of it: the transaction, and the number of the file in it."""
    return f"{transaction}/{path.rpartition('-')[2].partition('.')[0]}"


def _open(folder: Path) -> Path:
    return folder.with_name(folder.name + _OPEN)


def _mark(folder: Path) -> Path:
    return folder.with_name(folder.name + _MARK)
