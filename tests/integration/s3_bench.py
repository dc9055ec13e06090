"""What tests of sinks on a real S3 server share: a server with a bucket, a process that was told of it, what is there.

A module takes both fixtures in by name; ``told`` then holds for all of its tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "lake"
_RIGHTS = {"reader": [f"Read:{BUCKET}", f"List:{BUCKET}"], "blind": [f"Read:{BUCKET}", f"Write:{BUCKET}"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3]:
    """One server a module, whose tests may kill it. Beside ``all`` it knows who may not write, or not list."""
    with EmbeddedS3(tmp_path_factory.mktemp("s3"), rights=_RIGHTS) as found:
        found.make_bucket(BUCKET)
        yield found


@pytest.fixture(autouse=True)
def told(server: EmbeddedS3) -> Iterator[None]:
    """This process knows the server as its job's Hadoop does."""
    opened.tell(Hadoop(server.hadoop()))
    yield
    opened.tell(Hadoop())


def listed(server: EmbeddedS3, folder: str) -> Iterator[str]:
    """All objects below a folder, as whoever lists them finds them."""
    for name in server.names(BUCKET, folder):
        if name.endswith("/"):
            yield from listed(server, f"{folder}/{name.rstrip('/')}")
        else:
            yield f"{folder}/{name}"
