"""The archive of classes is written by one life, put in place when it is whole, and read by all others."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from onceonly_proof.campaign import classes
from onceonly_proof.campaign.classes import ClassArchive

if TYPE_CHECKING:
    import psutil


@dataclass
class FakeProcess:
    alive: list[psutil.Process] = field(default_factory=list)

    def members(self) -> list[psutil.Process]:
        return self.alive


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setenv("ONCEONLY_CACHE", str(tmp_path / "cache"))
    return ClassArchive.of("java 17")


def written(option: str) -> Path:
    """Return the file that a JVM is asked to write."""
    return Path(option.removeprefix("-XX:ArchiveClassesAtExit=").split(" ")[0])


def test_the_first_life_that_ends_in_order_writes_it_and_later_ones_read_it(
    archive: ClassArchive, tmp_path: Path
) -> None:
    written(archive.option(tmp_path)).write_bytes(b"classes")
    archive.finish(FakeProcess(), tmp_path)

    assert archive.path.read_bytes() == b"classes"
    assert archive.option(tmp_path) == f"-XX:SharedArchiveFile={archive.path}"
    assert list(archive.path.parent.iterdir()) == [archive.path]


def test_a_life_that_has_written_none_leaves_none(archive: ClassArchive, tmp_path: Path) -> None:
    archive.finish(FakeProcess(), tmp_path)

    assert not archive.path.exists()


def test_what_is_written_too_slowly_is_not_put_in_place(
    archive: ClassArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "_DUMP_TIMEOUT_S", 0.1)
    written(archive.option(tmp_path)).write_bytes(b"ha")
    archive.finish(FakeProcess(alive=cast("list[psutil.Process]", ["the JVM"])), tmp_path)

    assert not archive.path.exists()


def test_another_java_has_another_archive(archive: ClassArchive) -> None:
    assert ClassArchive.of("java 21").path != archive.path
    assert ClassArchive.of("java 17").path == archive.path


def test_a_spark_that_was_installed_anew_has_another_archive(
    archive: ClassArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    monkeypatch.setattr(classes, "jars", lambda: jars)
    first = ClassArchive.of("java 17").path
    assert first != archive.path
    assert ClassArchive.of("java 17").path == first
    os.utime(jars, (1, 1))
    assert ClassArchive.of("java 17").path != first
