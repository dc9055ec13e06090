"""Spark's own files after a power loss: what is torn and undecided is taken away, all else is left as it is."""

from __future__ import annotations

import errno
import fcntl
import json
import subprocess
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onceonly import events
from onceonly.checkpoint.inputs import SparkInputs
from onceonly.checkpoint.torn import mend
from onceonly.log import files as log_files
from onceonly.log.identity import Identity
from onceonly.log.presence import Presence
from onceonly.log.runs import Run, RunFiles
from onceonly.model import Link, LinkKind

if TYPE_CHECKING:
    from pathlib import Path

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1732650000000,"conf":{}}'
BARRIER = f'v1\n{METADATA}\n{{"logOffset":%d}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
LIST = 'v1\n{"path":"file:///in/%d.json","timestamp":1732650000000,"batchId":%d}'
QUERY = '{"id":"6c1b1c4e-96f8-4f55-8a0e-2f3c4d5e6f70"}'
TORN = {"empty": "", "zeros": "\0" * 60, "cut": '{"batchWat', "version": "v1", "nothing": "v1\n"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two epochs: 0 is complete, 1 is begun."""
    for folder in ("offsets", "commits", "sources/0"):
        (tmp_path / folder).mkdir(parents=True)
    put(tmp_path, "metadata", QUERY)
    for epoch in (0, 1):
        put(tmp_path, f"offsets/{epoch}", BARRIER % epoch)
        put(tmp_path, f"sources/0/{epoch}", LIST % (epoch, epoch))
    put(tmp_path, "commits/0", COMMIT)
    decide(tmp_path, 0)
    return tmp_path


def put(checkpoint: Path, name: str, text: str) -> None:
    path = checkpoint / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def decide(checkpoint: Path, epoch: int, kind: LinkKind = LinkKind.COMMIT, *, reads: bool = False) -> None:
    inputs = SparkInputs(checkpoint).read(epoch) if reads else None
    link = Link(epoch=epoch, index=0, kind=kind, plan="p", run="r", barrier=("{}",), inputs=inputs)
    path = checkpoint / "onceonly" / log_files.link(epoch, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log_files.encode("link", link))


def know(checkpoint: Path) -> None:
    identity = Identity(query=json.loads(QUERY)["id"], log="l", address="file:///x")
    (checkpoint / "onceonly" / "identity.json").write_bytes(log_files.encode("identity", identity))


def files(checkpoint: Path) -> dict[str, str]:
    found = (path for path in checkpoint.rglob("*") if path.is_file() and "onceonly" not in path.parts)
    return {str(path.relative_to(checkpoint)): path.read_text(encoding="utf-8") for path in found}


def test_what_is_whole_is_left_as_it_is(checkpoint: Path) -> None:
    before = files(checkpoint)
    assert mend(checkpoint) == ()
    assert files(checkpoint) == before


@pytest.mark.parametrize("text", TORN.values(), ids=TORN)
def test_a_torn_barrier_that_nobody_decided_is_taken_away(checkpoint: Path, text: str) -> None:
    put(checkpoint, "offsets/1", text)
    assert mend(checkpoint) == ("offsets/1",)
    assert "offsets/1" not in files(checkpoint)
    assert mend(checkpoint) == ()


def test_a_barrier_that_lacks_a_source_or_the_end_of_a_number_is_torn(checkpoint: Path) -> None:
    for whole, cut in (('{"a":1}\n-', '{"a":1}'), ("12", "1")):
        put(checkpoint, "offsets/0", f"v1\n{METADATA}\n{whole}")
        put(checkpoint, "offsets/1", f"v1\n{METADATA}\n{cut}")
        assert mend(checkpoint) == ("offsets/1",)


@pytest.mark.parametrize("text", TORN.values(), ids=TORN)
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_torn_barrier_that_is_decided_is_written_again_as_decided(
    checkpoint: Path, epoch: int, text: str
) -> None:
    for each in (0, 1):
        decide(checkpoint, each, reads=True)
    before = files(checkpoint)
    put(checkpoint, f"offsets/{epoch}", text)
    assert mend(checkpoint) == (f"offsets/{epoch}",)
    assert files(checkpoint) == before
    assert mend(checkpoint) == ()


def test_a_decided_barrier_that_is_gone_before_a_newer_one_is_written_again(checkpoint: Path) -> None:
    for each in (0, 1):
        decide(checkpoint, each, reads=True)
    before = files(checkpoint)
    (checkpoint / "offsets/0").unlink()
    assert mend(checkpoint) == ("offsets/0",)
    assert files(checkpoint) == before


def test_the_newest_barrier_that_is_gone_is_left_to_the_plan(checkpoint: Path) -> None:
    """An older checkpoint may have been restored: what that means is not for us to say here."""
    for each in (0, 1):
        decide(checkpoint, each, reads=True)
    (checkpoint / "offsets/1").unlink()
    before = files(checkpoint)
    assert mend(checkpoint) == ()
    assert files(checkpoint) == before


def test_a_barrier_whose_list_of_files_is_not_there_is_taken_away(checkpoint: Path) -> None:
    (checkpoint / "sources/0/1").unlink()
    assert mend(checkpoint) == ("offsets/1",)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_source_with_a_name_keeps_its_lists_under_it(checkpoint: Path, version: str) -> None:
    name = "src_a:" if version == "v2" else ""
    (checkpoint / "sources/0").rename(checkpoint / "sources/src_a")
    for epoch in (0, 1):
        put(checkpoint, f"offsets/{epoch}", f'{version}\n{METADATA}\n{name}{{"logOffset":{epoch}}}')
    assert mend(checkpoint) == ()
    (checkpoint / "sources/src_a/1").unlink()
    assert mend(checkpoint) == ("offsets/1",)


def test_a_barrier_with_the_names_of_sources_is_whole_or_torn_as_one_without(tmp_path: Path) -> None:
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "offsets/0", f"v2\n{METADATA}\nb-2:-\nrate.1:12")
    put(tmp_path, "sources/rate.1/0", "v1\n1732650000000")
    assert mend(tmp_path) == ()
    for torn in ("b-2:-", "b-2:-\nrate.1:", "b-2:-\nrate.1:1"):
        put(tmp_path, "offsets/1", f"v2\n{METADATA}\n{torn}")
        assert mend(tmp_path) == ("offsets/1",)


@pytest.mark.parametrize("torn", ["", "\0" * 9])
def test_offsets_that_are_text_are_whole_where_those_before_are(checkpoint: Path, torn: str) -> None:
    put(checkpoint, "offsets/0", f"v1\n{METADATA}\n2026-01-01T10:09Z\n12")
    for end in ("2026-01-01T10:10Z\n12", "2026-01-01T9:10Z\n13"):
        put(checkpoint, "offsets/1", f"v1\n{METADATA}\n{end}")
        assert mend(checkpoint) == ()
    for end in (f"{torn}\n13", "2026-01-01T10:10Z\n1", "2026-01-01T10:10Z"):
        put(checkpoint, "offsets/1", f"v1\n{METADATA}\n{end}")
        assert mend(checkpoint) == ("offsets/1",)


def test_a_first_barrier_without_what_its_source_keeps_is_taken_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "offsets/0", f"v1\n{METADATA}\n3")
    assert mend(tmp_path) == ("offsets/0",)
    # A first epoch that failed may look so, too, where a source of somebody else's keeps nothing.
    assert "or an end in the first epoch" in caplog.text
    put(tmp_path, "offsets/0", f"v1\n{METADATA}\n3")
    put(tmp_path, "sources/0/0", "v1\n1732650000000")
    assert mend(tmp_path) == ()


@pytest.mark.parametrize(
    "end",
    [
        {"journal": "j", "reader": "r", "segment": 2},
        {"start": {"shard": {"at": "12"}}, "done": []},
        {"offset": 4},
    ],
)
def test_a_first_barrier_of_a_source_in_python_is_planned_anew_and_not_called_torn(
    tmp_path: Path, end: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "offsets/0", f"v1\n{METADATA}\n{json.dumps(end)}")
    assert mend(tmp_path) == ()
    assert not (tmp_path / "offsets/0").exists(), "its source may begin elsewhere when it is asked again"
    assert not caplog.records, "no power was lost"
    cut, of_spark = json.dumps(end)[:-1], json.dumps(end, separators=(",", ":"))
    for torn in (cut, of_spark):  # Spark's own sources keep where they began
        put(tmp_path, "offsets/0", f"v1\n{METADATA}\n{torn}")
        assert mend(tmp_path) == ("offsets/0",)


def test_a_first_barrier_of_a_source_in_python_stays_while_its_driver_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "offsets/0", f'v1\n{METADATA}\n{{"offset": 4}}')
    monkeypatch.setattr("onceonly.checkpoint.torn._ENDS_S", 0.1)
    (tmp_path / "onceonly").mkdir()
    holding = Presence.hold(str(tmp_path))
    assert mend(tmp_path) == ()
    assert (tmp_path / "offsets/0").exists()
    holding.close()


def test_the_state_of_a_first_epoch_that_begins_anew_is_taken_away_and_no_other(tmp_path: Path) -> None:
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "offsets/0", "")
    put(tmp_path, "state/0/0/1.delta", "rows")
    assert set(mend(tmp_path)) == {"offsets/0", "state"}
    put(tmp_path, "state/0/0/1.delta", "rows")
    put(tmp_path, "state/0/0/7.snapshot", "rows of many epochs")
    assert mend(tmp_path) == ()
    (tmp_path / "state/0/0/7.snapshot").unlink()
    decide(tmp_path, 0)
    assert mend(tmp_path) == ()
    put(tmp_path, "offsets/0", f"v1\n{METADATA}\n-")
    assert mend(tmp_path) == ()


def test_a_first_epoch_that_a_living_driver_is_at_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly.checkpoint.torn._ENDS_S", 0.1)
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "offsets/0", BARRIER % 0)
    put(tmp_path, "sources/0/0", LIST % (0, 0))
    put(tmp_path, "state/0/0/1.delta", "rows")
    (tmp_path / "onceonly").mkdir()
    holding = Presence.hold(str(tmp_path))
    assert mend(tmp_path) == ()
    holding.close()
    assert set(mend(tmp_path)) == {"offsets/0", "state"}


def test_without_locks_a_first_epoch_is_left_alone_unless_its_run_has_ended_or_its_process_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr("onceonly.checkpoint.torn._ENDS_S", 0.0)
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "sources/0/0", LIST % (0, 0))
    (tmp_path / "onceonly").mkdir()
    Presence.hold(str(tmp_path)).close()
    here = events.stamp()
    with subprocess.Popen(["sleep", "60"]) as other:
        for host, pid, ended, is_left in (
            (here.host, other.pid, "", True), (here.host, other.pid, here.at, False), ("elsewhere", 1, "", True),
            (here.host, here.pid, "", False),
        ):  # fmt: skip
            put(tmp_path, "offsets/0", BARRIER % 0)
            put(tmp_path, "state/0/0/1.delta", "rows")
            run = Run(run="one", began=replace(here, host=host, pid=pid), ended=ended)
            RunFiles(tmp_path).put(run)
            assert (mend(tmp_path) == ()) is is_left, run
        other.kill()
    RunFiles(tmp_path).put(replace(run, began=replace(here, pid=other.pid)))
    put(tmp_path, "offsets/0", BARRIER % 0)
    put(tmp_path, "state/0/0/1.delta", "rows")
    assert mend(tmp_path) == ("offsets/0", "state")


def test_a_compacted_list_is_a_list(checkpoint: Path) -> None:
    (checkpoint / "sources/0/1").rename(checkpoint / "sources/0/1.compact")
    assert mend(checkpoint) == ()


def test_a_barrier_that_is_decided_is_never_touched(checkpoint: Path) -> None:
    put(checkpoint, "offsets/1", "")
    decide(checkpoint, 1)
    assert mend(checkpoint) == ()
    assert files(checkpoint)["offsets/1"] == ""


def test_an_epoch_that_is_void_is_not_decided(checkpoint: Path) -> None:
    put(checkpoint, "offsets/1", "")
    decide(checkpoint, 1, LinkKind.ABORT)
    assert mend(checkpoint) == ("offsets/1",)


@pytest.mark.parametrize("text", TORN.values(), ids=TORN)
def test_a_torn_note_of_a_complete_epoch_is_taken_away_and_its_barrier_stays(
    checkpoint: Path, text: str
) -> None:
    decide(checkpoint, 1)
    put(checkpoint, "commits/1", text)
    assert mend(checkpoint) == ("commits/1",)
    assert {"commits/0", "offsets/1", "sources/0/1"} <= files(checkpoint).keys()


STATE = "state/0/0/%d_5e2d7f0c-1111-4a6b-9c3d-2b1a0f9e8d7c.zip"


@pytest.mark.parametrize("is_torn", [True, False])
def test_a_barrier_whose_state_only_a_note_that_is_gone_could_name_is_taken_away(
    checkpoint: Path,
    is_torn: bool,  # noqa: FBT001
) -> None:
    put(checkpoint, STATE % 1, "left by epoch 0")
    assert mend(checkpoint) == (), "the note names it"
    put(checkpoint, "commits/0", "")
    if not is_torn:
        (checkpoint / "commits/0").unlink()
    assert mend(checkpoint) == (*(["commits/0"] if is_torn else []), "offsets/1")
    # Spark runs epoch 0 again, which drains.
    assert mend(checkpoint) == ()


@pytest.mark.parametrize("state", ["state/0/0/1.zip", STATE % 2, "state/0/_stateSchema/default/1_5e2d7f0c"])
def test_a_barrier_whose_state_has_its_number_alone_stays_without_the_note(
    checkpoint: Path, state: str
) -> None:
    put(checkpoint, state, "state")
    put(checkpoint, "commits/0", "")
    assert mend(checkpoint) == ("commits/0",)


def test_a_barrier_stays_where_the_epoch_before_would_be_written_once_more(checkpoint: Path) -> None:
    put(checkpoint, "offsets/2", BARRIER % 2)
    put(checkpoint, "sources/0/2", LIST % (2, 2))
    put(checkpoint, STATE % 2, "left by epoch 1, which another sink has written")
    assert mend(checkpoint) == ()


@pytest.mark.parametrize(
    "text", ["", "\0" * 60, "v", "v1", "v1\n", LIST[:20], LIST[:40] + "\0" * 20, "\0v1\n{"]
)
def test_a_torn_list_of_files_goes_with_the_barrier_that_names_it(checkpoint: Path, text: str) -> None:
    put(checkpoint, "sources/0/1", text)
    assert set(mend(checkpoint)) == {"offsets/1", "sources/0/1"}
    assert {"offsets/0", "sources/0/0", "commits/0"} <= files(checkpoint).keys()


@pytest.mark.parametrize("text", ["0", '{"shards":', "<state/>", "\x00\x00\x01binary", "version 2"])
def test_what_a_source_of_somebody_elses_keeps_is_its_own_business(checkpoint: Path, text: str) -> None:
    for number in (0, 1):
        put(checkpoint, f"sources/0/{number}", text)
        put(checkpoint, f"offsets/{number}", f'v1\n{METADATA}\n{{"at":{number}}}')
    before = files(checkpoint)
    assert mend(checkpoint) == ()
    assert files(checkpoint) == before


def test_a_torn_list_of_a_decided_epoch_is_not_touched(checkpoint: Path) -> None:
    put(checkpoint, "sources/0/0", "")
    (checkpoint / "sources/0/1").unlink()
    (checkpoint / "offsets/1").unlink()
    assert mend(checkpoint) == ()


def test_what_a_rate_and_a_kafka_source_keep_is_whole(checkpoint: Path) -> None:
    put(checkpoint, "sources/1/0", "v1\n1732650000000")
    put(checkpoint, "sources/2/0", '\0v1\n{"events":{"0":0}}')
    assert mend(checkpoint) == ()


@pytest.mark.parametrize("text", TORN.values(), ids=TORN)
def test_the_querys_id_is_written_again_from_our_log(checkpoint: Path, text: str) -> None:
    know(checkpoint)
    put(checkpoint, "metadata", text)
    assert mend(checkpoint) == ("metadata",)
    assert files(checkpoint)["metadata"] == QUERY
    (checkpoint / "metadata").unlink()
    assert mend(checkpoint) == ("metadata",)
    assert files(checkpoint)["metadata"] == QUERY


def test_a_query_that_has_decided_nothing_begins_anew(tmp_path: Path) -> None:
    put(tmp_path, "metadata", "")
    put(tmp_path, "offsets/0", BARRIER % 0)
    assert set(mend(tmp_path)) == {"metadata", "offsets/0"}
    assert files(tmp_path) == {}


def test_a_checkpoint_that_another_sink_has_used_keeps_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, "metadata", "")
    put(tmp_path, "offsets/0", BARRIER % 0)
    put(tmp_path, "commits/0", COMMIT)
    assert mend(tmp_path) == ()


@pytest.mark.parametrize(
    "sums", [b"", b"crc\0", b"crc\0\0\0\2\0\0\0\0\0", b"\0" * 12], ids=["empty", "cut", "other", "zeros"]
)
def test_a_checksum_that_is_not_its_files_is_taken_away_and_the_file_stays(
    checkpoint: Path, sums: bytes
) -> None:
    before = files(checkpoint)
    for name in ("offsets/.1.crc", "commits/.0.crc", "sources/0/.0.crc", ".metadata.crc"):
        (checkpoint / name).write_bytes(sums)
    assert len(mend(checkpoint)) == 4
    assert files(checkpoint) == before


def test_a_checksum_of_a_whole_file_stays_and_that_of_a_torn_one_goes_with_it(checkpoint: Path) -> None:
    for name in ("offsets/0", "offsets/1"):
        data = (checkpoint / name).read_bytes()
        sums = (zlib.crc32(data[at : at + 16]).to_bytes(4, "big") for at in range(0, len(data), 16))
        (checkpoint / name.replace("/", "/.")).with_suffix(".crc").write_bytes(
            b"crc\0\0\0\0\x10" + b"".join(sums)
        )
    assert mend(checkpoint) == ()
    put(checkpoint, "offsets/1", "")
    assert "offsets/1" in mend(checkpoint)
    assert {each.name for each in (checkpoint / "offsets").iterdir()} == {"0", ".0.crc"}


def test_a_damaged_log_of_ours_means_hands_off(checkpoint: Path) -> None:
    put(checkpoint, "offsets/1", "")
    (checkpoint / "onceonly" / log_files.link(1, 0)).write_bytes(b"damaged")
    assert mend(checkpoint) == ()


def test_temporary_files_of_ours_go_once_they_are_old_and_nobody_works_here(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(checkpoint)
    foreign = [
        "offsets/.1.6c1b1c4e-96f8-4f55-8a0e-2f3c4d5e6f70.tmp", "sources/0/.x.0123456789ab.tmp",
        "sources/.0.0123456789ab.tmp", "state/.1.0123456789ab.tmp",
    ]  # fmt: skip
    ours = [
        "offsets/.1.0123456789ab.tmp", "commits/.0.0123456789ab.tmp", ".metadata.0123456789ab.tmp",
        "sources/0/.9.compact.0123456789ab.tmp", "onceonly/runs/.20260101T000000000Z-r.json.17.tmp",
        "onceonly/progress/.00000000000000000000-00000000000000000009.json.17.tmp",
    ]  # fmt: skip
    for name in (*foreign, *ours):
        put(checkpoint, name, "")

    def is_left(names: list[str]) -> list[bool]:
        assert mend(checkpoint) == ()
        assert files(checkpoint).items() >= before.items()
        return [(checkpoint / name).exists() for name in names]

    assert all(is_left(ours)), "a process may be at it"
    monkeypatch.setattr("onceonly.checkpoint.torn._OLD_S", -1.0)
    monkeypatch.setattr("onceonly.checkpoint.torn._ENDS_S", 0.0)
    presence = Presence.hold(str(checkpoint))
    assert presence.held
    assert all(is_left(ours))
    presence.close()
    assert not any(is_left(ours))
    assert all(is_left(foreign))


def test_no_checkpoint_is_nothing_to_do(tmp_path: Path) -> None:
    assert mend(tmp_path / "none") == ()


def test_what_a_process_left_that_died_in_its_first_epoch_is_taken_away_as_spark_begins_over_nothing_else(
    tmp_path: Path,
) -> None:
    left = [
        "offsets/.0.5f0f3ac5-06d5-4f0c-8f0e-5a3a1a3a8a7b.tmp",
        "offsets/..0.5f0f3ac5-06d5-4f0c-8f0e-5a3a1a3a8a7b.tmp.crc",
        "commits/.0.0b9a7d0e-7d0c-4f6e-9c3e-0e7f5a1c2b3d.tmp",
    ]
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "offsets/README", "somebody's")
    for name in left:
        put(tmp_path, name, "v1")
    assert set(mend(tmp_path)) == set(left)
    put(tmp_path, "offsets/0", f"v1\n{METADATA}\n-")
    put(tmp_path, left[0], "v1")
    assert mend(tmp_path) == (), "Spark has begun: it looks at names only"


@pytest.mark.parametrize("torn", ["state/0/_metadata/metadata", "state/0/0/_metadata/schema"])
def test_a_first_epoch_with_state_is_planned_anew_as_what_describes_the_state_may_be_torn(
    tmp_path: Path, torn: str
) -> None:
    put(tmp_path, "metadata", QUERY)
    put(tmp_path, "offsets/0", f"v1\n{METADATA}\n-")
    put(tmp_path, torn, "")
    assert mend(tmp_path) == ("offsets/0", "state")
    put(tmp_path, "offsets/0", f"v1\n{METADATA}\n-")
    put(tmp_path, torn, "")
    put(tmp_path, "commits/0", COMMIT)
    assert mend(tmp_path) == (), "another sink has written it"
    (tmp_path / "commits/0").unlink()
    decide(tmp_path, 0)
    assert mend(tmp_path) == (), "durable before the decision"
