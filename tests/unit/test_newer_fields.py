"""A file that is whole and says more than this version knows: by name, and with what to do, which is no repair.

The decision log's own files have a version that each new field raises: ``test_log_codec`` has these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.checkpoint.files import FolderFiles
from onceonly.errors import JournalError, LogError, OnceonlyError
from onceonly.guards import known
from onceonly.savepoints import manifest as savepoints
from onceonly.sinks.files.manifests import manifest as manifests
from onceonly.sources.journal import segments
from onceonly.sources.kinesis import ranges

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHERE = "/x/file"


def sources(tmp_path: Path, body: bytes) -> None:
    place = tmp_path / "onceonly" / "sources.json"
    place.parent.mkdir()
    place.write_bytes(known._FORMAT.seal("sources", body))
    known.read(FolderFiles(tmp_path))


READERS: dict[str, Callable[[Path, bytes], object]] = {
    "sources.json": sources,
    "manifest": lambda _, body: manifests.decode_manifests(
        manifests._FORMAT.seal("manifest", body), where=WHERE
    ),
    "layout": lambda _, body: manifests.decode_layout(manifests._FORMAT.seal("layout", body), where=WHERE),
    "savepoint": lambda _, body: savepoints.decode(savepoints._FORMAT.seal("savepoint", body), where=WHERE),
    "journal": lambda _, body: segments.decode_note(
        segments.FORMAT.seal("reading", body), "reading", segments.Reading, where=WHERE
    ),
    "range": lambda _, body: ranges.unseal(ranges._FORMAT.seal("range", body), where=WHERE),
}


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_file_of_another_version_is_refused_by_name_and_says_to_upgrade(tmp_path: Path, name: str) -> None:
    with pytest.raises(OnceonlyError, match="another version of it wrote it") as refused:
        READERS[name](tmp_path, b'{"of a newer version":1}')
    assert isinstance(refused.value, JournalError if name == "journal" else LogError)
    assert (str(tmp_path) if name == "sources.json" else WHERE) in refused.value.what
    assert refused.value.next_step.startswith(
        "upgrade onceonly on driver and executors to the version that wrote"
    )
