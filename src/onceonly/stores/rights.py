"""What a store lets the job do below a place, asked by what changes nothing. An operator's process.

S3 looks at rights before it looks for an upload: a part of one that nobody has begun needs the right to put, and is
refused as there is no such upload. Nothing is removed but what is not there, and in a bucket that keeps versions not
even that, as it would leave a mark. Other stores tell of a right only in doing what needs it.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, SetupError
from onceonly.stores.address import Kind
from onceonly.stores.opened import open_store, open_uploads, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.stores.address import Address
    from onceonly.stores.objects import ObjectStore
    from onceonly.stores.uploads import S3Uploads


def require_rights(address: Address, folders: Sequence[str] = ("",), *, in_parts: bool = False) -> str:
    """See that objects may be listed, read, put and removed below folders of a place; nothing is changed.

    A folder ends with a slash; an empty text is the place itself. ``in_parts`` says that uploads are left open there,
    which have to be listed. Return why some of it cannot be seen, empty where all is. Raises ``ConfigurationError``
    that names the right that is missing, ``UnavailableError``.
    """
    store, unseen = (
        open_store(address),
        f"what may be put and removed in {address.shown} shows only in doing it",
    )
    from onceonly.stores.objects import ObjectStore  # open_store says it where the package is missing

    if not isinstance(store, ObjectStore):
        return unseen
    for folder in () if in_parts else folders:  # beside uploads, other people's objects may lie
        name = store.any_name(folder)
        if name is not None:
            store.head(name)
    if address.kind is not Kind.S3:
        return unseen
    try:
        uploads = open_uploads(replace(address, path=""))
    except SetupError:
        return f"{unseen}: without the package boto3, S3 is not asked"
    if in_parts:
        for folder in folders:
            next(uploads.standing(_below(address, folder)), None)
    try:
        hidden = _changing(store, uploads, address, folders)
    except ConfigurationError as error:
        if told().access(address).machine:
            return f"{error.what}; by the credentials of this machine, and nothing tells whether the job has the same"
        raise
    return f"what may be {' and '.join(hidden)} in {address.shown} shows only in doing it" if hidden else ""


def _changing(
    store: ObjectStore, uploads: S3Uploads, address: Address, folders: Sequence[str]
) -> Sequence[str]:
    """Ask for what changes something; return what cannot be seen."""
    keeps_versions, hidden = uploads.keeps_versions(), dict[str, None]()
    for folder in folders:
        name = uuid.uuid4().hex
        if not uploads.may_put(_below(address, f"{folder}{name}")):
            hidden["put"] = None
        if keeps_versions is False:
            store.delete(f"{folder}{name}")
        else:
            hidden["removed"] = None
    return list(hidden)


def _below(address: Address, name: str) -> str:
    return f"{address.path}/{name}".lstrip("/")
