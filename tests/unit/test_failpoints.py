"""Crash points do nothing until they are armed, and then act once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onceonly import failpoints
from onceonly.failpoints import FailpointError, hit

SOURCE = Path(failpoints.__file__).parent
NAME = "link.before_put"


@pytest.fixture(autouse=True)
def unarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCEONLY_FAILPOINTS", raising=False)
    monkeypatch.delenv("ONCEONLY_FAILPOINTS_DIR", raising=False)
    monkeypatch.setattr(failpoints, "_counts", {})


def test_a_point_that_is_not_armed_does_nothing() -> None:
    hit(NAME)


def test_a_point_acts_on_the_nth_pass_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"receipt.after_put=raise, {NAME}=raise@2")

    hit(NAME)
    with pytest.raises(FailpointError, match=NAME):
        hit(NAME)
    hit(NAME)


@pytest.mark.parametrize("shared", [True, False], ids=["counted in a folder", "counted here"])
def test_two_armings_of_one_point_count_the_same_passes(
    shared: bool,  # noqa: FBT001  a parameter of the test
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shared:
        monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(tmp_path))
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{NAME}=raise@2, {NAME}=raise@4, {NAME}=raise@4#1")

    fired = [_raises() for _ in range(5)]

    assert fired == [False, True, False, True, False]


@pytest.mark.parametrize("spec", ["nowhere=kill", f"{NAME}=explode", f"{NAME}=raise@soon", NAME])
def test_a_wrong_arming_is_refused_with_what_is_known(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", spec)

    with pytest.raises(ValueError, match=re.escape("actions: kill, pause, raise")):
        hit(NAME)


def test_passes_are_counted_over_all_processes_that_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{NAME}=raise@3")
    monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(tmp_path))

    statuses = [_process().wait(60) for _ in range(4)]

    assert [status != 0 for status in statuses] == [False, False, True, False]
    assert failpoints.fired(tmp_path) == [NAME]


def test_kill_leaves_the_process_no_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{NAME}=kill")
    monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(tmp_path))

    assert _process().wait(60) == -signal.SIGKILL
    assert failpoints.fired(tmp_path) == [NAME]


def test_a_point_is_not_seen_to_have_fired_before_it_is_told_in_which_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{NAME}=raise")
    monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(tmp_path))
    write = Path.write_text

    def seen(path: Path, text: str, encoding: str) -> int:
        path.touch()
        assert failpoints.fired(tmp_path) == []
        return write(path, text, encoding=encoding)

    monkeypatch.setattr(Path, "write_text", seen)
    assert _raises()
    assert (tmp_path / f"{NAME}.fired").read_text() == str(os.getpid())


def test_pause_stands_still_until_a_hand_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{NAME}=pause")
    monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(tmp_path))
    process = _process()
    try:
        deadline = time.monotonic() + 60
        while failpoints.fired(tmp_path) != [NAME]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
    finally:
        process.kill()
        process.wait(60)


def test_a_pause_that_is_resumed_goes_on_normally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{NAME}=pause")
    monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(tmp_path))
    (tmp_path / "resume").touch()

    hit(NAME)

    assert failpoints.fired(tmp_path) == [NAME]


def test_passes_in_another_folder_are_counted_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{NAME}=raise")
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(folder))

        with pytest.raises(FailpointError, match=NAME):
            hit(NAME)
        hit(NAME)


def test_a_point_can_be_armed_for_one_sink_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", "commit.before_handle[files]=raise@2")
    for sink in ("files", "kafka", "kafka", "kafka"):
        failpoints.hit("commit.before_handle", of=sink)
    with pytest.raises(failpoints.FailpointError, match=r"before_handle\[files\]"):
        failpoints.hit("commit.before_handle", of="files")


def test_points_passed_for_many_sinks_are_passed_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = ("files", "kafka", "kafka")
    failpoints.hit_all("commit.before_handle", of=sinks)
    monkeypatch.setenv(
        "ONCEONLY_FAILPOINTS", "commit.before_handle[kafka]=raise@2, commit.after_handle=raise@3"
    )
    for point in ("commit.before_handle[kafka]", "commit.after_handle"):
        with pytest.raises(failpoints.FailpointError, match=re.escape(point)):
            failpoints.hit_all(point.partition("[")[0], of=sinks)
    failpoints.hit_all("commit.before_handle", of=sinks)


def test_what_is_armed_for_any_sink_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    points = ("commit.before_handle", "commit.after_handle")
    assert not failpoints.is_armed(points)
    for text, is_armed in (
        ("link.after_put=kill", False),
        ("link.after_put=kill, commit.after_handle=kill@7", True),
        ("commit.before_handle[files]=raise", True),
    ):
        monkeypatch.setenv("ONCEONLY_FAILPOINTS", text)
        assert failpoints.is_armed(points) is is_armed


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "armed"
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"@{file}")
    hit(NAME)  # no file, nothing armed

    failpoints.arm(file, [f"{NAME}=raise#1"])
    with pytest.raises(FailpointError):
        hit(NAME)
    hit(NAME)
    failpoints.arm(file, [f"{NAME}=raise@2#2", "receipt.after_put=raise#3"])
    hit(NAME)
    with pytest.raises(FailpointError):
        hit(NAME)
    failpoints.arm(file, [])
    hit("receipt.after_put")


def test_an_arming_with_an_id_fires_once_for_all_processes_and_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "armed", tmp_path / "fired"
    folder.mkdir()
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"@{file}")
    monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(folder))
    statuses: list[int] = []
    for number in (1, 2):
        failpoints.arm(file, [f"{NAME}=kill#{number}"])
        statuses += [_process().wait(60), _process().wait(60)]

    assert statuses == [-signal.SIGKILL, 0, -signal.SIGKILL, 0]
    assert failpoints.fired(folder) == [f"{NAME}#1", f"{NAME}#2"]


def test_a_pause_with_an_id_is_resumed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{NAME}=pause#2")
    monkeypatch.setenv("ONCEONLY_FAILPOINTS_DIR", str(tmp_path))
    (tmp_path / "resume#1").touch()
    process = _process()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        (tmp_path / "resume#2").touch()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)


def test_a_wrong_arming_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="known points"):
        failpoints.arm(tmp_path / "armed", ["nowhere=kill"])
    assert list(tmp_path.iterdir()) == []


def test_every_point_is_passed_somewhere_and_every_passing_is_known() -> None:
    passed: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in re.findall(r"failpoints\.hit(?:_all)?\(([^)]*)\)|\bhit\(([^)]*)\)", text):
            passed |= set(re.findall(r'"([a-z]+\.[a-z_]+)"', "".join(call)))

    assert passed == failpoints.NAMES.keys()


def _raises() -> bool:
    try:
        hit(NAME)
    except FailpointError:
        return True
    return False


def _process() -> subprocess.Popen[bytes]:
    code = f"from onceonly import failpoints; failpoints.hit({NAME!r})"
    return subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ), stderr=subprocess.DEVNULL)
