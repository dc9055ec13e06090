"""Which of Spark's files a start after an epoch needs: small trees as Spark 4.2 wrote them, by their names."""

from __future__ import annotations

import json

import pytest

from onceonly.savepoints import resolve
from onceonly.savepoints.resolve import MissingError

A, B, C, LATE = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abcd")
PLAIN = "v1\n{}"


def noted(newest: int, *, oldest: int = 0) -> list[str]:
    return [
        "metadata",
        *(f"{log}/{at}" for log in ("offsets", "commits") for at in range(oldest, newest + 1)),
    ]


def of(
    names: list[str], epoch: int, *, barrier: str = 'v1\n{}\n{"offset":1}', commit: str = PLAIN
) -> set[str]:
    found = resolve.needed(names, epoch, barrier=barrier, commit=commit).names
    assert len(found) == len(set(found))
    return set(found)


def test_of_hdfs_backed_state_the_newest_snapshot_and_the_deltas_since() -> None:
    state = [f"state/0/0/{version}.delta" for version in range(4, 12)]
    state += [
        "state/0/0/4.snapshot",
        "state/0/0/8.snapshot",
        "state/0/0/_metadata/schema",
        "state/0/_metadata/metadata",
    ]
    found = of([*noted(10, oldest=5), *state], 9)
    assert found == {
        "metadata", "offsets/7", "offsets/8", "offsets/9", "commits/7", "commits/8", "commits/9",
        "state/0/0/8.snapshot", "state/0/0/8.delta", "state/0/0/9.delta", "state/0/0/10.delta",
        "state/0/0/_metadata/schema", "state/0/_metadata/metadata",
    }  # fmt: skip


def test_every_store_of_a_join_and_every_operator_has_its_own_state() -> None:
    stores = [
        f"state/{operator}/{partition}/{store}"
        for operator in (0, 1)
        for partition in (0, 1)
        for store in "lr"
    ]
    state = [f"{store}/{version}.zip" for store in stores for version in (2, 3, 4)]
    found = of([*noted(3), *state], 2)
    assert {name for name in found if name.startswith("state")} == {f"{store}/3.zip" for store in stores}
    assert resolve.needed([*noted(3), *state], 2, barrier="v1\n{}", commit=PLAIN).archives == tuple(
        f"{store}/3.zip" for store in sorted(stores)
    )


def test_of_rocksdb_with_changelog_the_newest_archive_and_every_changelog_since() -> None:
    state = [f"state/0/0/{version}.changelog" for version in range(1, 9)] + [
        "state/0/0/3.zip",
        "state/0/0/6.zip",
    ]
    found = of([*noted(7), *state], 6)
    kept = {"state/0/0/6.zip", "state/0/0/6.changelog", "state/0/0/7.changelog"}
    assert {name for name in found if name.startswith("state")} == kept


def test_an_archive_names_what_it_stands_on_beside_it() -> None:
    listed = {
        "sstFiles": [{"dfsSstFileName": "1-a.sst"}],
        "logFiles": [{"dfsLogFileName": "2-b.log"}],
        "numKeys": 1,
    }
    found = resolve.of_archive("state/0/1/left/7.zip", "v1\n" + json.dumps(listed))
    assert found == ("state/0/1/left/SSTs/1-a.sst", "state/0/1/left/logs/2-b.log")


def test_of_format_2_the_commit_says_which_state_counts() -> None:
    state = [f"state/0/0/3_{A}.changelog", f"state/0/0/3_{LATE}.changelog", f"state/0/0/2_{B}.zip"]
    state += [f"state/0/0/2_{B}.changelog", f"state/0/0/2_{B}.zip.crc"]
    commit = "v2\n" + json.dumps({"nextBatchWatermarkMs": 7, "stateUniqueIds": {"0": [[A]]}})
    found = of([*noted(3), *state], 2, commit=commit)
    assert {name for name in found if name.startswith("state")} == {*state} - {
        f"state/0/0/3_{LATE}.changelog"
    }


def test_where_a_late_task_left_files_of_an_earlier_version_all_of_them_go_along() -> None:
    state = [
        f"state/0/0/1_{C}.zip",
        f"state/0/0/2_{LATE}.zip",
        f"state/0/0/2_{B}.changelog",
        f"state/0/0/3_{A}.changelog",
    ]
    state += [f"state/0/0/1_{C}.changelog"]
    commit = "v2\n" + json.dumps({"stateUniqueIds": {"0": [[A]]}})
    found = of([*noted(3), *state, f"state/0/0/4_{A}.changelog"], 2, commit=commit)
    assert {name for name in found if name.startswith("state")} == {*state}


def test_nothing_above_the_epoch_goes_along() -> None:
    state = [f"state/0/0/{version}.delta" for version in range(1, 6)]
    schemas = [f"state/0/_metadata/v2/{start}" for start in (0, 4)] + [f"state/0/_stateSchema/default/4_{A}"]
    found = of([*noted(4), *state, *schemas], 2)
    assert not {
        name for name in found if name.rpartition("/")[2].partition(".")[0].partition("_")[0] in {"4", "5"}
    }
    assert "state/0/_metadata/v2/0" in found


def test_partitions_that_the_state_of_the_epoch_does_not_have_do_not_count() -> None:
    barrier = 'v1\n{"conf":{"spark.sql.shuffle.partitions":"2"}}\n{"offset":1}'
    names = [
        *noted(3),
        *(f"state/0/{number}/3.zip" for number in (0, 1)),
        "state/0/2/9.zip",
        "state/0/10/1.zip",
    ]
    found = of(names, 2, barrier=barrier)
    assert {name for name in found if name.startswith("state/")} == {"state/0/0/3.zip", "state/0/1/3.zip"}


def test_of_lists_of_files_those_up_to_the_barrier_after_the_newest_that_repeats_others() -> None:
    lists = ["9.compact", "10", "11", "12", "19.compact", "8"]
    names = [*noted(3), *(f"sources/0/{name}" for name in lists)]
    found = of(names, 2, barrier='v1\n{}\n{"logOffset":11}')
    assert {name for name in found if name.startswith("sources")} == {
        f"sources/0/{name}" for name in ("9.compact", "10", "11")
    }


def test_a_list_of_files_that_spark_has_taken_into_a_later_one_is_told() -> None:
    names = [*noted(3), "sources/0/19.compact", "sources/0/20"]
    with pytest.raises(MissingError, match="later list of files"):
        of(names, 2, barrier='v1\n{}\n{"logOffset":11}')


def test_what_other_sources_have_noted_goes_along() -> None:
    names = [*noted(3), "sources/0/0", "sources/1/0", "sources/1/4"]
    found = of(names, 2, barrier='v1\n{}\n{"offset":3}\n{"logOffset":0}')
    assert {name for name in found if name.startswith("sources")} == {"sources/0/0", "sources/1/0"}


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("metadata", "metadata"),
        ("offsets/4", "offsets/4"),
        ("offsets/3", "offsets/3"),
        ("commits/4", "commits/4"),
        ("state/0/1/5.delta", "version 5 of the state state/0/1"),
        ("state/0/0/4.delta", "version 4 of the state state/0/0"),
    ],
)
def test_what_is_not_there_is_named(gone: str, told: str) -> None:
    state = [f"state/0/{partition}/{version}.delta" for partition in (0, 1) for version in range(1, 6)]
    names = [*noted(4), *state]
    assert of(names, 4)
    with pytest.raises(MissingError, match=told):
        of([name for name in names if name != gone], 4)


def test_epochs_within_reach_have_the_offsets_of_the_one_before() -> None:
    assert resolve.candidates(noted(7, oldest=4)) == [5, 6, 7]
    assert resolve.candidates(noted(2)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ([], ""),
        (["state/0/0/1.delta"], "HDFS-backed"),
        (["state/0/0/1.zip"], "RocksDB"),
        (["state/0/0/1.zip", "state/0/0/1.changelog"], "RocksDB with changelog"),
        ([f"state/0/0/1_{A}.zip", f"state/0/0/1_{A}.changelog"], "RocksDB with changelog, format 2"),
    ],
)
def test_the_provider_is_told_by_the_names(state: list[str], word: str) -> None:
    assert resolve.provider(state) == word
