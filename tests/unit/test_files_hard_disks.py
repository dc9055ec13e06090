"""The files sink on full and read-only disks of the kernel's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit import hard_disks

if TYPE_CHECKING:
    from pathlib import Path

BENCH = """
import pyarrow as pa
from tests.unit.files_bench import Files, rows
from onceonly import files

bench = Files(disk / "out", {"compression": "none"})
"""


def in_namespace(folder: Path, script: str) -> list[str]:
    """Run a script that has a sink on such a disk; give what it prints."""
    return hard_disks.in_namespace(folder, BENCH + script)


def test_a_full_disk_while_writing_is_a_typed_error_and_the_next_try_goes_on(tmp_path: Path) -> None:
    said = in_namespace(
        tmp_path,
        """
from itertools import repeat
ballast = disk / "ballast"
kept = bench.prepared(rows(1, 2))
ballast.write_bytes(bytes(900_000))
def fill():
    sink, attempt = bench.begin(slot=1)
    try:
        for start in range(0, 200_000, 10_000):
            ids = list(range(start, start + 10_000))
            sink.write(attempt, pa.record_batch({"id": ids, "day": ["d"] * 10_000}))
        sink.pre_commit(attempt)
    finally:
        sink.discard(attempt)
print(refused(fill))
print(bench.visible(), len(bench.staged()))
ballast.unlink()
print(bench.finish(0, kept, bench.prepared(rows(3, 4), slot=1)), bench.ids())
""",
    )
    assert said[0].startswith("WriteFailedError")
    assert "no space for" in said[0]
    assert "ENOSPC" in said[0]
    assert said[1] == "[] 2"
    assert said[2] == "['Committed', 'Committed'] [1, 2, 3, 4]"


def test_a_full_disk_at_commit_and_manifest_is_put_off_and_nothing_is_lost(tmp_path: Path) -> None:
    said = in_namespace(
        tmp_path,
        """
handles = [bench.prepared(rows(1, 2))]
ballast = (disk / "ballast").open("wb", buffering=0)
try:
    while ballast.write(bytes(4096)):
        pass
except OSError:
    pass
sink = bench.sink()
print(type(sink.commit(handles[0])).__name__)
print(refused(lambda: sink.complete(bench.context, 0, handles)))
print(refused(lambda: sink.check(bench.context)))
ballast.truncate(0)
print(bench.finish(0, *handles), bench.ids(), [epoch.rows for epoch in files.committed(str(bench.target))])
""",
    )
    assert said[0] in {"RetryLater", "Committed"}  # a name may still find room in its folder
    assert said[1].startswith("UnavailableError")
    assert said[2].startswith("UnavailableError")
    assert "ENOSPC" in said[1]
    assert said[3].endswith("[1, 2] [2]")


def test_a_read_only_target_is_refused_before_the_first_record(tmp_path: Path) -> None:
    said = in_namespace(
        tmp_path,
        """
handle = bench.prepared(rows(1))
mount("-o", "remount,ro", "none", str(disk))
print(refused(lambda: bench.sink().check(bench.context)))
print(refused(lambda: Files(disk / "new").sink().check(bench.context)))
print(bench.sink().commit(handle))
print(refused(lambda: bench.sink().abort(handle)))
mount("-o", "remount,rw", "none", str(disk))
print(bench.finish(0, handle), bench.ids())
""",
    )
    assert said[0].startswith("ConfigurationError")
    assert "may not write to" in said[0]
    assert "EROFS" in said[0]
    assert said[1].startswith("ConfigurationError")
    assert said[2].startswith("RetryLater")
    assert "files belongs to user 0, and this process is user 0" in said[2]
    assert said[3].startswith("UnavailableError")
    assert said[4] == "['Committed'] [1]"


def test_a_file_that_may_not_grow_is_a_typed_error(tmp_path: Path) -> None:
    said = in_namespace(
        tmp_path,
        """
import resource
bench = Files(disk / "limited", {"format": "json"})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
def fill():
    sink, attempt = bench.begin()
    sink.write(attempt, pa.record_batch({"id": list(range(20_000)), "day": ["d"] * 20_000}))
    sink.pre_commit(attempt)
print(refused(fill))
""",
    )
    assert said[0].startswith("WriteFailedError")
    assert "EFBIG" in said[0]


def test_every_format_tells_a_full_disk_by_its_name_wherever_it_meets_it(tmp_path: Path) -> None:
    said = in_namespace(
        tmp_path,
        """
import os, random
def fill(form, rows):
    bench = Files(disk / f"{form}-{rows}", {"format": form, "compression": "none"}, columns=(("id", "bigint"),))
    bench.options["partitionby"] = ""
    sink, attempt = bench.begin()
    (disk / "ballast").write_bytes(bytes(700_000))
    try:
        for start in range(0, rows, 20_000):
            ids = [random.getrandbits(62) for _ in range(20_000)]
            sink.write(attempt, pa.record_batch({"id": ids}))
        sink.pre_commit(attempt)
    finally:
        sink.discard(attempt)
        (disk / "ballast").unlink()
        names = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        left = [name for name in names if name.startswith(str(disk))]
        assert left == bench.staged() == [], left
for form in ("parquet", "orc", "json", "csv"):
    for rows in (60_000, 2_000_000):  # met at its end, and before
        print(form, rows, refused(lambda: fill(form, rows)), flush=True)
""",
    )
    assert len(said) == 8
    for line in said:
        assert "WriteFailedError" in line
        assert "no space for" in line
        assert "ENOSPC" in line
