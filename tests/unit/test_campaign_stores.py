"""Where checkpoints of a campaign are: read and copied without the code that is judged; servers die only there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.test_campaign_matrix import one

from onceonly.errors import UnavailableError
from onceonly_proof.campaign.faults import KillStore, TakeFilesAt
from onceonly_proof.campaign.kinds import KINDS
from onceonly_proof.campaign.plan import plan_round
from onceonly_proof.campaign.stores import JOURNALS, STORES, Folders, OnHdfs, OnMoto, OnS3, _Served
from onceonly_proof.campaign.targets import StoredFiles
from onceonly_proof.cli.verify import _STORES

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "rounds/7/offsets/9": b"v1",
    "rounds/7/offsets/10": b"v1\n{}",
    "rounds/7/metadata": b"{}",
    "rounds/7/onceonly/links/0.json": b"link",
}


def names(path: str) -> list[str]:
    below = [name.removeprefix(f"{path}/") for name in FILES if name.startswith(f"{path}/")]
    return list(dict.fromkeys(f"{name.split('/')[0]}/" if "/" in name else name for name in below))


@pytest.fixture
def served() -> _Served:
    return _Served("s3a://bucket/campaign", names, FILES.get)


def test_every_store_has_its_word_on_the_command_line() -> None:
    assert (*STORES, *(f"{store}{JOURNALS}" for store in STORES if store != "folder")) == _STORES


def test_a_checkpoint_is_copied_whole(served: _Served, tmp_path: Path) -> None:
    address = served.address(tmp_path / "rounds" / "7")
    served.copy(address, tmp_path / "copy")
    found = {
        str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()
    }
    assert found == {"offsets/9", "offsets/10", "metadata", "onceonly/links/0.json"}
    assert (tmp_path / "copy" / "offsets" / "10").read_bytes() == b"v1\n{}"


def test_its_newest_epoch_is_read_from_there(served: _Served, tmp_path: Path) -> None:
    address = served.address(tmp_path / "rounds" / "7")
    assert served.newest(address, "offsets") == 10
    assert served.newest(address, "commits") == -1
    assert served.text(address, "offsets/10") == "v1\n{}"
    assert served.text(address, "offsets/11") == ""


def test_a_file_that_is_listed_and_not_there_is_no_copy(tmp_path: Path) -> None:
    served = _Served("s3a://bucket/campaign", names, lambda _: None)
    with pytest.raises(UnavailableError, match="is listed, and is not there"):
        served.copy("s3a://bucket/campaign/rounds/7", tmp_path / "copy")


def test_a_server_that_was_just_killed_shows_nothing(tmp_path: Path) -> None:
    def refused(_: str) -> list[str]:
        raise ConnectionRefusedError

    served = _Served("s3a://bucket/campaign", refused, refused)  # type: ignore[arg-type]
    assert served.newest("s3a://bucket/campaign/rounds/7", "offsets") == -1
    assert served.text("s3a://bucket/campaign/rounds/7", "offsets/1") == ""
    with pytest.raises(UnavailableError, match="could not be copied"):
        served.copy("s3a://bucket/campaign/rounds/7", tmp_path / "copy")


def test_a_checkpoint_in_a_folder_is_audited_where_it_is(tmp_path: Path) -> None:
    store = Folders()
    address = store.address(tmp_path)
    assert store.newest(address, "offsets") == -1
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "3").write_text("v1")
    (tmp_path / "checkpoint" / "offsets" / ".3.tmp").write_text("")
    store.copy(address, tmp_path / "checkpoint")
    assert (store.newest(address, "offsets"), store.text(address, "offsets/3")) == (3, "v1")


@pytest.mark.parametrize("number", range(1, 5))
def test_a_store_dies_only_where_it_has_servers_and_the_rest_of_a_plan_stays(number: int) -> None:
    without = plan_round(1, number, "kafka")
    served = plan_round(1, number, "kafka", served=True)
    added = [blow for blow in served.blows if isinstance(blow.fault, KillStore)]
    assert not [blow for blow in without.blows if isinstance(blow.fault, KillStore)]
    first = {name for name, kind in KINDS.items() if not kind.later}
    assert [blow for blow in served.blows if blow not in added][: len(first)] == list(without.blows)[
        : len(first)
    ]


def test_a_store_that_would_forget_everything_is_not_killed() -> None:
    rounds = [plan_round(1, number, "files", served=True, dies=False) for number in range(1, 20)]
    faults = {type(blow.fault) for plan in rounds for blow in plan.blows}
    assert KillStore not in faults
    assert TakeFilesAt not in faults, "files are not in a folder either"
    assert [store.dies for store in (Folders, OnS3, OnMoto, OnHdfs)] == [False, True, False, True]


def test_in_a_round_of_each_kind_a_store_dies_once() -> None:
    blows = plan_round(1, 1, "kafka", served=True, each=True).blows
    assert sum(isinstance(blow.fault, KillStore) for blow in blows) == 1


def test_the_command_that_runs_a_round_again_names_the_store_where_it_is_not_a_folder() -> None:
    assert msgspec.structs.replace(one(), store="s3").command.endswith(" --checkpoint s3")
    assert "--checkpoint" not in msgspec.structs.replace(one(), store="folder").command
    assert "--checkpoint" not in one().command


def test_files_are_written_on_the_store_of_the_checkpoints_and_read_as_anybody_lists_them() -> None:
    unique = "a" * 32
    held = {
        f"files-out/third=1/part-00003-00001-{unique}-00000.json": b'{"key":"k","value":"v"}\n{"value":"w"}\n',
        "files-out/_onceonly/epochs/q/files/0.manifest": b"books",
        "files-out/third=1/.hidden": b'{"value":"undecided"}\n',
    }

    def listed(path: str) -> list[str]:
        below = [name.removeprefix(f"{path}/") for name in held if name.startswith(f"{path}/")]
        return list(dict.fromkeys(f"{name.split('/')[0]}/" if "/" in name else name for name in below))

    target = StoredFiles("s3a://bucket/campaign", listed, held.get, lambda folder: [f"{folder}/upload"])
    assert target.options("out") == {"path": "s3a://bucket/campaign/files-out", "format": "json"}
    reader = target.reader("files", "out")
    rows = list(reader.rows())
    assert [(row.key, row.value, row.transaction) for row in rows] == [
        (b"k", b"v", f"3-1-{unique}"),
        (None, b"w", f"3-1-{unique}"),
    ]
    assert list(reader.rows()) == rows
    assert [each.what for each in reader.orphans()] == ["staged files-out/upload"]
    assert not Folders().targets()


def test_a_store_that_is_down_is_read_later() -> None:
    def refused(_: str) -> list[str]:
        raise ConnectionRefusedError

    reader = StoredFiles("s3a://bucket/campaign", refused, lambda _: None, refused).reader("files", "out")
    with pytest.raises(UnavailableError, match="could not be read"):
        list(reader.rows())
    with pytest.raises(UnavailableError, match="could not be read"):
        reader.orphans()


def test_no_consumer_takes_files_where_they_are_on_a_store() -> None:
    for is_served in (True, False):
        rounds = [plan_round(7, number, "files", served=is_served) for number in range(1, 20)]
        taking = [blow for each in rounds for blow in each.blows if isinstance(blow.fault, TakeFilesAt)]
        assert bool(taking) is not is_served
