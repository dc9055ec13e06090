"""The archive of classes is written by one life, put in place when it is whole, and read by all others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from onceonly.testing.campaign import classes
from onceonly.testing.campaign.classes import ClassArchive

if TYPE_CHECKING:
    import psutil

    from onceonly.testing.process import JobProcess


@dataclass
class FakeProcess:
    exit_code: int | None = None
    alive: list[psutil.Process] = field(default_factory=list)

    def members(self) -> list[psutil.Process]:
        return self.alive


def job(process: FakeProcess) -> JobProcess:
    return cast("JobProcess", process)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setenv("ONCEONLY_CACHE", str(tmp_path))
    return ClassArchive.of("java 17", tmp_path)


def test_the_first_life_writes_it_and_later_ones_read_it(archive: ClassArchive) -> None:
    first, other = FakeProcess(), FakeProcess()
    option = archive.option()
    archive.started(job(first), option)
    written = Path(option.removeprefix("-XX:ArchiveClassesAtExit=").split(" ")[0])
    assert archive.option() == ""

    written.write_bytes(b"classes")
    first.exit_code = 0
    archive.finish(job(other))
    assert not archive.path.exists()
    archive.finish(job(first))

    assert archive.path.read_bytes() == b"classes"
    assert archive.option() == f"-XX:SharedArchiveFile={archive.path}"


def test_a_writer_that_was_killed_is_replaced(archive: ClassArchive) -> None:
    first = FakeProcess()
    option = archive.option()
    archive.started(job(first), option)
    first.exit_code = -9

    assert archive.option() == option


def test_what_is_written_too_slowly_is_not_put_in_place(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "_DUMP_TIMEOUT_S", 0.1)
    slow = FakeProcess(exit_code=0, alive=cast("list[psutil.Process]", ["the JVM"]))
    option = archive.option()
    archive.started(job(slow), option)
    Path(option.removeprefix("-XX:ArchiveClassesAtExit=").split(" ")[0]).write_bytes(b"ha")
    archive.finish(job(slow))

    assert not archive.path.exists()


def test_another_java_has_another_archive(archive: ClassArchive) -> None:
    assert ClassArchive.of("java 21", archive.work).path != archive.path
    assert ClassArchive.of("java 17", archive.work).path == archive.path
