"""Delegation tokens that Hadoop hands to a container: the file that ``HADOOP_TOKEN_FILE_LOCATION`` names.

YARN writes it for each container, and Spark's Python inherits its name. A token is a login that its bearer need not
prove, and it ends: after a day unless it is renewed, after a week all the same, as a cluster is set.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly.stores.kerberos import KEYTAB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE: Final = "HADOOP_TOKEN_FILE_LOCATION"
"""The environment's name for the file."""

_MAGIC: Final = b"HDTS\0"  # Hadoop's Credentials, written as Writables
_KINDS: Final = frozenset({"HDFS_DELEGATION_TOKEN", "WEBHDFS delegation", "SWEBHDFS delegation"})
# WritableUtils.readVInt: a small number is its own byte, a larger one has its length and sign there.
_SMALL, _NEGATIVE = -112, -120


@dataclass(frozen=True, slots=True)
class Token:
    """One token for HDFS: whose it is, and what goes into an address as ``delegation``. A secret."""

    service: str
    text: str

    def __repr__(self) -> str:
        return f"Token({self.service})"


def token_of_process(service: str, environment: Mapping[str, str] | None = None) -> str:
    """Return what this container has for a name service or ``host:port``, nothing where it has none. Any process.

    A keytab of the process's own wins, as its logins do not end. So does a file that is not there or no such file.
    """
    around = os.environ if environment is None else environment
    if not around.get(FILE) or around.get(KEYTAB):
        return ""
    try:
        found = read(Path(around[FILE]).read_bytes())
    except (OSError, ValueError):
        return ""
    return choose(found, service)


def choose(tokens: Sequence[Token], service: str) -> str:
    """Return the token of a name service or ``host:port``; the only one, where there is only one. Pure."""
    own = [token for token in tokens if token.service in {f"ha-hdfs:{service}", service}]
    found = own or (tokens if len(tokens) == 1 else [])
    return found[0].text if found else ""


def read(data: bytes) -> list[Token]:
    """Return the tokens for HDFS in a file of Hadoop's. Pure. Raises ``ValueError`` for what is no such file."""
    if not data.startswith(_MAGIC):
        message = "this is no file of tokens"
        raise ValueError(message)
    count, at = _number(data, len(_MAGIC))
    found = []
    for _ in range(count):
        _, at = _field(data, at)  # the name that it is kept by
        begin = at
        fields = []
        for _ in range(4):  # identifier, password, kind, service
            field, at = _field(data, at)
            fields.append(field)
        if fields[2].decode() in _KINDS:
            text = base64.urlsafe_b64encode(data[begin:at]).decode().rstrip("=")
            found.append(Token(service=fields[3].decode(), text=text))
    return found


def _field(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _number(data, at)
    if length < 0 or at + length > len(data):
        message = "the file of tokens ends too soon"
        raise ValueError(message)
    return data[at : at + length], at + length


def _number(data: bytes, at: int) -> tuple[int, int]:
    first = int.from_bytes(data[at : at + 1], signed=True)
    if first >= _SMALL:
        return first, at + 1
    length = (_NEGATIVE if first < _NEGATIVE else _SMALL) - first
    value = int.from_bytes(data[at + 1 : at + 1 + length])
    return (~value if first < _NEGATIVE else value), at + 1 + length
