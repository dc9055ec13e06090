"""Who may not mount is told so in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.errors import SetupError
from onceonly_proof.power import PowerDisk, mounting

if TYPE_CHECKING:
    from pathlib import Path


def test_without_the_device_one_sentence_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounting, "_DEVICE", tmp_path / "fuse")
    assert not mounting.may_mount()
    with (
        pytest.raises(SetupError, match="/dev/fuse, and to be root or to have fusermount3"),
        PowerDisk(tmp_path / "disk"),
    ):
        pass
    assert not (tmp_path / "disk").exists()
