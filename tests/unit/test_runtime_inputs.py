"""What an epoch reads of Spark's checkpoint: noted in its decision, compared, and written again as decided."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from onceonly import offsets
from onceonly.checkpoint import inputs
from onceonly.checkpoint.inputs import SparkInputs
from onceonly.errors import LogError, UnavailableError
from onceonly.model import Inputs, Link, LinkKind

if TYPE_CHECKING:
    from pathlib import Path


class Checkpoint:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.inputs = SparkInputs(path)

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.with_name(f".{path.name}.crc").write_text(f"of {text}")

    def offsets(self, epoch: int, *ends: str, at: int = 0) -> None:
        self.write(f"offsets/{epoch}", "\n".join(["v1", f'{{"batchTimestampMs":{at}}}', *ends]))

    def files(self, number: int, *names: str, compact: bool = False, source: str = "0") -> None:
        """Write a list of files, as of one that lists the earlier ones once more: pairs of number and name there."""
        self.write(f"sources/{source}/{number}" + ".compact" * compact, entries(number, *names))

    def text(self, name: str) -> str:
        return (self.path / name).read_text()

    def names(self) -> set[str]:
        return {str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file()}


def entries(number: int, *names: str) -> str:
    told = [name.partition(":") if ":" in name else (str(number), "", name) for name in names]
    lines = [
        json.dumps({"path": path, "timestamp": 1, "batchId": int(of)}, separators=(",", ":"))
        for of, _, path in told
    ]
    return "\n".join(["v1", *lines])


def log_offset(number: int) -> str:
    return f'{{"logOffset":{number}}}'


def link(epoch: int, noted: Inputs) -> Link:
    return Link(
        epoch=epoch,
        index=0,
        kind=LinkKind.COMMIT,
        plan="p",
        run="r",
        barrier=noted.barrier or (),
        inputs=noted,
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    made = Checkpoint(tmp_path)
    for epoch in (0, 1):
        made.files(epoch, f"/in/{epoch}a", f"/in/{epoch}b")
        made.offsets(epoch, log_offset(epoch), at=epoch)
    return made


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ('v1\n{"conf":{}}\n{"logOffset":1}', ('{"logOffset":1}',)),
        ('v1\n{}\n{"t":{"0":5}}\n-\n17', ('{"t":{"0":5}}', "-", "17")),
        ('v2\n{}\nsrc_a:{"logOffset":1}\n1:{"t":{"0":5}}\nb-2:-', ('{"logOffset":1}', '{"t":{"0":5}}', "-")),
        ('v1\n{}\n"2026-01-01 10:00:00"\n["a:b"]', ('"2026-01-01 10:00:00"', '["a:b"]')),
        ("v1\n{}\n2026-01-01T10:00\nshard:5\n17", ("2026-01-01T10:00", "shard:5", "17")),
        ("v2\n{}\nsrc_a:2026-01-01T10:00\n1:shard:5\n2:17", ("2026-01-01T10:00", "shard:5", "17")),
        ("v1", ()),
    ],
)
def test_the_end_of_each_source_is_what_the_source_says_in_both_forms(
    text: str, ends: tuple[str, ...]
) -> None:
    assert offsets.barrier(text) == ends


def test_a_decision_is_compared_with_offsets_that_are_text_and_look_as_if_they_had_a_name() -> None:
    assert offsets.is_same(("a:5", "17"), ("a:5", "17"))
    assert not offsets.is_same(("a:5",), ("b:5",))
    assert not offsets.is_same(("a:5",), ("a:5", "17"))
    assert offsets.is_same(('src_a:{"t":{"0":5}}',), ('{"t":{"0":5}}',)), "the oldest decisions keep names"
    assert offsets.is_same(("5",), ("a:5",)), "others were cut"


def test_an_epoch_notes_its_barrier_and_the_lists_of_files_since_the_one_before(
    checkpoint: Checkpoint,
) -> None:
    checkpoint.files(2, "/in/2")
    checkpoint.files(3, "/in/3")
    checkpoint.offsets(2, log_offset(3), at=2)
    found = checkpoint.inputs.read(2)
    assert [file.name for file in found.files] == ["offsets/2", "sources/0/2", "sources/0/3"]
    assert [file.text for file in found.files] == [checkpoint.text(file.name) for file in found.files]
    assert found.barrier == (log_offset(3),)
    assert checkpoint.inputs.read(3) == Inputs()


def test_the_first_epoch_notes_where_other_sources_begin(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write("sources/0/0", 'v1\n{"t":{"0":3}}')
    for epoch in (0, 1):
        checkpoint.offsets(epoch, f'{{"t":{{"0":{epoch + 5}}}}}')
    assert [file.name for file in checkpoint.inputs.read(0).files] == ["offsets/0", "sources/0/0"]
    assert [file.name for file in checkpoint.inputs.read(1).files] == ["offsets/1"]


def test_a_source_with_a_name_keeps_its_lists_under_it(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.files(0, "/in/a", source="src_a")
    checkpoint.write("offsets/0", f"v2\n{{}}\nsrc_a:{log_offset(0)}")
    assert [file.name for file in checkpoint.inputs.read(0).files] == ["offsets/0", "sources/src_a/0"]
    checkpoint.write("offsets/0", f"v1\n{{}}\n{log_offset(0)}")
    assert [file.name for file in checkpoint.inputs.read(0).files] == ["offsets/0", "sources/src_a/0"]


def test_a_lost_barrier_that_spark_planned_anew_is_written_as_it_was_with_its_list_of_files(
    checkpoint: Checkpoint,
) -> None:
    decided, before = checkpoint.inputs.read(1), checkpoint.names()
    texts = {name: checkpoint.text(name) for name in ("offsets/1", "sources/0/1")}
    checkpoint.files(1, "/in/7", "/in/8")
    checkpoint.offsets(1, log_offset(1), at=99)
    assert checkpoint.inputs.read(1).barrier == decided.barrier
    assert checkpoint.inputs.read(1) != decided
    told = checkpoint.inputs.restore([link(1, decided)], None)
    assert "offsets/1" in " ".join(told)
    assert "sources/0/1" in " ".join(told)
    assert texts == {name: checkpoint.text(name) for name in texts}
    assert checkpoint.inputs.read(1) == decided
    assert checkpoint.names() == before - {"offsets/.1.crc", "sources/0/.1.crc"}, (
        "Spark refuses another one's checksum"
    )
    assert checkpoint.inputs.restore([link(1, decided)], None) == ()


def test_files_that_are_gone_are_made_again(checkpoint: Checkpoint) -> None:
    decided = checkpoint.inputs.read(1)
    for name in ("offsets/1", "offsets/.1.crc", "sources/0/1"):
        (checkpoint.path / name).unlink()
    checkpoint.inputs.restore([link(1, decided)], None)
    assert checkpoint.inputs.read(1) == decided


def test_what_was_planned_from_a_wrong_start_is_taken_away(checkpoint: Checkpoint) -> None:
    decided = checkpoint.inputs.read(0)
    checkpoint.offsets(0, log_offset(7))
    told = checkpoint.inputs.restore([link(0, decided)], checkpoint.inputs.read(1).files[0])
    assert checkpoint.inputs.read(0) == decided
    assert not {"offsets/1", "offsets/.1.crc"} & checkpoint.names()
    assert "offsets/1" in told[-1]


def test_what_was_planned_from_a_wrong_start_goes_before_the_right_start_is_there(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a driver that starts between the two, or after a crash there, takes it for right."""
    decided, planned = checkpoint.inputs.read(0), checkpoint.inputs.read(1).files[0]
    checkpoint.offsets(0, log_offset(7))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onceonly.durable.disk.write_new", full)
    with pytest.raises(UnavailableError, match="cannot be written as it was decided"):
        checkpoint.inputs.restore([link(0, decided)], planned)
    assert "offsets/1" not in checkpoint.names()


def test_what_another_driver_has_planned_meanwhile_is_left_alone(checkpoint: Checkpoint) -> None:
    decided, planned = checkpoint.inputs.read(0), checkpoint.inputs.read(1).files[0]
    checkpoint.offsets(1, log_offset(1), at=99)
    before = checkpoint.names()
    assert checkpoint.inputs.restore([link(0, decided)], planned) == ()
    assert '"batchTimestampMs":99' in checkpoint.text("offsets/1")
    assert checkpoint.names() == before


def test_what_another_driver_has_claimed_meanwhile_is_left_alone(checkpoint: Checkpoint) -> None:
    decided, planned = checkpoint.inputs.read(0), checkpoint.inputs.read(1).files[0]
    before, seen = checkpoint.names(), []

    def is_mine() -> bool:
        seen.append("offsets/1" in checkpoint.names())
        return False

    assert checkpoint.inputs.restore([link(0, decided)], planned, is_mine) == ()
    assert checkpoint.names() == before
    assert seen == [False], "whoever claims it after this look finds no file when it is about to decide"


def test_of_a_compacted_list_the_newest_entries_count(checkpoint: Checkpoint) -> None:
    checkpoint.files(2, "0:/in/0a", "0:/in/0b", "1:/in/1a", "1:/in/1b", "/in/2", compact=True)
    checkpoint.offsets(2, log_offset(2), at=2)
    decided, former = checkpoint.inputs.read(2), checkpoint.text("sources/0/2.compact")
    assert decided.files[1].text == entries(2, "/in/2")
    checkpoint.files(2, "0:/in/0a", "0:/in/0b", "1:/in/1a", "1:/in/1b", "/in/8", compact=True)
    checkpoint.inputs.restore([link(2, decided)], None)
    assert checkpoint.text("sources/0/2.compact") == former
    for number in (0, 1):  # cleared away once they stand in the compacted one
        (checkpoint.path / f"sources/0/{number}").unlink()
    assert checkpoint.inputs.read(1).files[1].text == entries(1, "/in/1a", "/in/1b")


def test_a_list_too_long_to_be_kept_is_compared_and_where_it_differs_named_before_anything_is_touched(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "TEXT_BYTES_MAX", 20)
    decided = checkpoint.inputs.read(1)
    assert decided.files[1].text is None
    assert checkpoint.inputs.restore([link(1, decided)], None) == ()
    checkpoint.files(1, "/in/7")
    checkpoint.offsets(1, log_offset(1), at=99)
    with pytest.raises(LogError, match=r"sources/0/1 is not as chk-1 was decided.*too long"):
        checkpoint.inputs.restore([link(1, decided)], None)
    assert '"batchTimestampMs":99' in checkpoint.text("offsets/1")
