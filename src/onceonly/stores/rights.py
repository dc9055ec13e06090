"""What a store lets the job do below a place, asked by what changes nothing. An operator's process.

Stores look at rights before they look for what is named. S3 refuses a part of an upload that nobody has begun, Google a
put over a version that there never was: each needs the right to put. Nothing is removed but what is not there; in a
bucket of S3 that keeps versions not even that, as it would leave a mark. Azure tells of a right only in doing what
needs it.
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
    store = open_store(address)
    unseen = f"what may be put and removed in {address.shown} shows only in doing it"
    from onceonly.stores.objects import ObjectStore  # open_store says it where the package is missing

    if not isinstance(store, ObjectStore):
        return unseen
    for folder in () if in_parts else folders:  # beside uploads, other people's objects may lie
        name = store.any_name(folder)
        if name is not None:
            store.head(name)
    if address.kind is Kind.AZURE:
        return unseen
    uploads: S3Uploads | None = None
    if address.kind is Kind.S3:
        try:
            uploads = open_uploads(replace(address, path=""))
        except SetupError:
            return f"{unseen}: without the package boto3, S3 is not asked"
        for folder in folders if in_parts else ():
            next(uploads.standing(_below(address, folder)), None)
    try:
        hidden = _changing(store, uploads, address, folders)
    except ConfigurationError as error:
        if told().access(address).machine:
            return f"{error.what}; by the credentials of this machine, and nothing tells whether the job has the same"
        raise
    return f"what may be {' and '.join(hidden)} in {address.shown} shows only in doing it" if hidden else ""


def _changing(
    store: ObjectStore, uploads: S3Uploads | None, address: Address, folders: Sequence[str]
) -> Sequence[str]:
    """Ask for what changes something; return what cannot be seen."""
    # Google keeps versions of what there was, and no mark of what there was not.
    keeps_versions, hidden = uploads.keeps_versions() if uploads else False, dict[str, None]()
    for folder in folders:
        name = uuid.uuid4().hex
        may_put = (
            uploads.may_put(_below(address, f"{folder}{name}"))
            if uploads
            else store.may_put(f"{folder}{name}")
        )
        if not may_put:
            hidden["put"] = None
        if keeps_versions is False:
            store.delete(f"{folder}{name}")
        else:
            hidden["removed"] = None
    return list(hidden)


def _below(address: Address, name: str) -> str:
    return f"{address.path}/{name}".lstrip("/")
