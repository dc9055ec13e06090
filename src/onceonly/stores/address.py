"""Which store an address means: a checkpoint as users write it, read as Hadoop reads it. Pure.

``s3a://bucket/chk``, ``gs://bucket/chk``, ``abfss://container@account.dfs.core.windows.net/chk``,
``hdfs://namenode:8020/chk``, ``file:/chk`` and ``/chk``. Percent signs, question marks and hashes are letters of a
name, as in Hadoop's ``Path``.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import Final

from onceonly.durable.addresses import local_folder
from onceonly.errors import ConfigurationError

LOCAL: Final = "file:///"
"""Hadoop's ``fs.defaultFS`` where nobody has set it."""

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CONTAINER = re.compile(r"(?P<container>\$?[a-z0-9][a-z0-9-]*)@(?P<host>[a-z0-9][a-z0-9.-]*)", re.IGNORECASE)
_NAME_NODE = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?|")
_HDFS_PORT = ":8020"
_LOGIN = re.compile(r"[^/]*:[^/]*@")


class Kind(enum.StrEnum):
    """The stores that there are, each by the scheme of its canonical address."""

    FOLDER = "file"
    S3 = "s3"
    GCS = "gs"
    AZURE = "abfss"
    HDFS = "hdfs"

    @property
    def system(self) -> str:
        """What people call it."""
        return _SYSTEMS[self]


_SYSTEMS = {
    Kind.FOLDER: "a file system",
    Kind.S3: "S3",
    Kind.GCS: "Google Cloud Storage",
    Kind.AZURE: "Azure Storage",
    Kind.HDFS: "HDFS",
}
_KINDS = {
    "file": Kind.FOLDER,
    "s3": Kind.S3,
    "s3a": Kind.S3,
    "gs": Kind.GCS,
    "abfs": Kind.AZURE,
    "abfss": Kind.AZURE,
    "wasb": Kind.AZURE,
    "wasbs": Kind.AZURE,
    "hdfs": Kind.HDFS,
}
_FORMS = {
    Kind.S3: "s3a://bucket/folder",
    Kind.GCS: "gs://bucket/folder",
    Kind.AZURE: "abfss://container@account.dfs.core.windows.net/folder",
    Kind.HDFS: "hdfs://namenode:8020/folder",
}
_S3_GATEWAY = "reach it by its S3 interface: s3a://bucket/folder, with its address as fs.s3a.endpoint"
_WAYS_OUT = {
    "dbfs": "name the cloud's own storage: an external location by its s3://, abfss:// or gs:// address; the DBFS "
    "root and FUSE mounts do not refuse to write over a name",
    "viewfs": "name the hdfs:// address that the mount table has for this folder",
    "webhdfs": "write it as hdfs://namenode/folder",
    "swebhdfs": "write it as hdfs://namenode/folder",
    "har": "an archive cannot be written; name a folder of HDFS",
    "adl": "this storage was closed in 2024; name its successor as abfss://container@account.dfs.core.windows.net/folder",
    "s3n": "write it as s3a://bucket/folder",
    **dict.fromkeys(("o3fs", "ofs", "oss", "obs", "cosn", "cos", "oci", "swift", "tos", "ks3"), _S3_GATEWAY),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A place in a store. ``scheme`` is as the user wrote it, in lower case, empty for a plain path.

    ``container`` is the bucket, the container of an Azure account, or a name node or name service. ``path`` has no
    slash at its ends, but for a folder, whose path is absolute.
    """

    kind: Kind
    scheme: str = ""
    container: str = ""
    host: str = ""
    """Of an Azure account: ``account.dfs.core.windows.net``."""
    path: str = ""

    @property
    def text(self) -> str:
        """The canonical address: the same for every way to write the same place. Links of folders are not resolved."""
        return self._by(self.kind.value)

    @property
    def location(self) -> str:
        """The address in full, by the scheme that the user wrote: on S3 it says whose settings count."""
        return self._by(self.scheme or self.kind.value)

    @property
    def shown(self) -> str:
        """What people call it: a plain path, or the address in full."""
        return self.path if self.kind is Kind.FOLDER else self.location

    def below(self, name: str) -> Address:
        """Return the address of something in this place."""
        return replace(self, path=f"{self.path.rstrip('/')}/{name}" if self.path else name)

    def _by(self, scheme: str) -> str:
        if self.kind is Kind.FOLDER:
            return f"file://{self.path}"
        at = f"@{self.host}" if self.host else ""
        return f"{scheme}://{self.container}{at}/{self.path}".rstrip("/")


def parse(text: str, *, what: str = "the checkpoint", default: str = LOCAL) -> Address:
    """Read an address. Anywhere. ``what`` it is of, for the error; ``default`` is Hadoop's ``fs.defaultFS``.

    Raises ``ConfigurationError`` for what no store is known for, which names the way out, and for an address that
    cannot be read. One that holds a password is refused, and not shown.
    """
    match = _SCHEME.fullmatch(text)
    # As in Hadoop, a colon after the first slash is part of a name.
    scheme = "" if match is None or "/" in match["scheme"] else match["scheme"].lower()
    if match is None or not scheme:
        return _plain(text, what, default)
    kind = _KINDS.get(scheme)
    if kind is None:
        raise ConfigurationError(
            f"{what} {_shown(text)} is on {scheme}:, where onceonly can keep nothing",
            next_step=_WAYS_OUT.get(
                scheme,
                "use a path, or an address that begins with s3a:, gs:, abfss:, hdfs: or file:",
            ),
        )
    if kind is Kind.FOLDER:
        return Address(kind=kind, scheme=scheme, path=str(local_folder(text, what=what)))
    return _remote(kind, scheme, match["rest"], _shown(text), what)


def _plain(text: str, what: str, default: str) -> Address:
    """Read a path, which is in Hadoop's default file system."""
    if default.partition(":")[0].lower() in {"file", ""}:
        return Address(kind=Kind.FOLDER, path=str(local_folder(text, what=what)))
    if not text.startswith("/"):
        raise ConfigurationError(
            f"{what} {text!r} is a relative path, and Hadoop's default file system is {_shown(default)}",
            next_step="write the address in full, such as " + default.rstrip("/") + "/folder",
        )
    return parse(default.rstrip("/") + text, what=what)


def _remote(kind: Kind, scheme: str, rest: str, shown: str, what: str) -> Address:
    authority, _, path = rest.removeprefix("//").partition("/")
    if not rest.startswith("//"):  # hdfs:/folder
        authority, path = "", rest
    at = ""
    if kind is Kind.AZURE:
        match = _CONTAINER.fullmatch(authority)
        fits = match is not None
        if match is not None:
            # Both interfaces of an account lead to the same objects.
            authority, at = match["container"].lower(), match["host"].lower().replace(".blob.", ".dfs.", 1)
    elif kind is Kind.HDFS:
        fits = _NAME_NODE.fullmatch(authority) is not None
        authority = authority.lower().removesuffix(_HDFS_PORT)
    else:
        fits = _BUCKET.fullmatch(authority) is not None
    if not fits or "\0" in path:
        raise ConfigurationError(
            f"{what} {shown} is not an address of {kind.system}",
            next_step=f"write it as {_FORMS[kind]}; keys and passwords do not belong into an address",
        )
    return Address(kind=kind, scheme=scheme, container=authority, host=at, path=_normal(path, shown, what))


def _normal(path: str, shown: str, what: str) -> str:
    """Return a path as Hadoop does: slashes once, dots resolved."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise ConfigurationError(
                    f"{what} {shown} leads out of its store", next_step="write it without '..'"
                )
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def _shown(text: str) -> str:
    """Return an address without what looks like a login."""
    scheme, colon, rest = text.partition("://")
    return scheme + colon + _LOGIN.sub("[redacted]@", rest, count=1) if colon else text
