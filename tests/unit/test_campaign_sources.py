"""Rounds that read another source than Kafka: what is drawn for them, told to them, judged of them, and kept."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import msgspec
import pytest
from rich.console import Console
from tests.unit.journal_bench import opened, rows
from tests.unit.test_campaign_matrix import blocks, fold, one

from onceonly import failpoints
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.model import LinkKind
from onceonly.sources.journal import Journal, Reader
from onceonly_proof.auditor import Anomaly, Decision, Input, Seen, Slot, World, judge
from onceonly_proof.auditor.log import _ends
from onceonly_proof.campaign import job, making, watch, way
from onceonly_proof.campaign.plan import FAULTS_MAX, plan_round
from onceonly_proof.campaign.queries import is_possible
from onceonly_proof.campaign.records import records
from onceonly_proof.campaign.run import CampaignOptions, run_campaign
from onceonly_proof.campaign.sources import SOURCES, Place, journal
from onceonly_proof.campaign.sources.http import Numbers
from onceonly_proof.campaign.sources.kinesis import Shards
from onceonly_proof.campaign.sources.rabbitmq import Messages, Offsets
from onceonly_proof.campaign.stores import Folders, _Served
from onceonly_proof.campaign.targets import keyed
from onceonly_proof.campaign.task import Task
from onceonly_proof.campaign.workload import is_whole, row
from onceonly_proof.cli import verify as cli_verify
from onceonly_proof.embedded import feeds

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.campaign.result import Round

ROUNDS = range(1, 60)
ANY = Task(
    servers="", source="", target="", files="", checkpoint="", connector="files", guarantee="", per_epoch=1
)


def names(source: str, connector: str = "files") -> set[str]:
    plans = [plan_round(1, number, connector, source=source) for number in ROUNDS]
    return {blow.fault.name for plan in plans for blow in plan.blows}


def of(source: str, **given: object) -> Round:
    return msgspec.structs.replace(one(), source=source, connector="files", replays=7, **given)


def test_the_command_takes_every_source_that_there_is_a_world_for() -> None:
    assert set(cli_verify._SOURCES) == {way.KAFKA, *SOURCES}
    assert SOURCES.keys() == way.SERVED | way.SERVERLESS


@pytest.mark.parametrize("source", sorted(way.SERVED))
def test_the_server_of_a_source_dies_and_no_broker_that_nobody_uses(source: str) -> None:
    found = names(source)
    assert {"kill source at slot.during_write", "kill source at link.after_put"} <= found
    assert not {name for name in found if "broker" in name}
    assert "stop broker" in names(source, "kafka")


def test_who_receives_or_fixes_ranges_dies_where_a_source_has_one() -> None:
    for source, points in {
        "http": failpoints.OF_JOURNALS,
        "socket": failpoints.OF_JOURNALS,
        "http-no-resume": failpoints.OF_JOURNALS,
        "rabbitmq-no-ids": failpoints.OF_JOURNALS,
        "rabbitmq": failpoints.OF_JOURNALS,
        "kinesis": failpoints.OF_RANGES,
        "rabbitmq-stream": (),
        way.KAFKA: (),
    }.items():
        found = names(source)
        for point in (*failpoints.OF_JOURNALS, *failpoints.OF_RANGES):
            assert (f"kill {point}" in found) == (f"kill driver at {point}" in found) == (point in points)


@pytest.mark.parametrize("connector", ["files", "kafka", "files+kafka"])
@pytest.mark.parametrize("source", sorted(way.SERVED))
def test_within_twenty_crashes_all_that_is_a_sources_own_has_died_at_each_of_its_points(
    source: str, connector: str
) -> None:
    served = ("plan.after_resolve", "slot.during_write", "link.after_put", "receipt.after_put")
    own = failpoints.OF_JOURNALS if source in way.JOURNALED else ()
    own += failpoints.OF_RANGES if source in way.RANGED else ()
    wanted = {f"kill source at {point}" for point in served}
    wanted |= {f"{what} {point}" for what in ("kill", "kill driver at") for point in own}
    for number in ROUNDS:
        found, crashes = set[str](), 0
        for blow in plan_round(1, number, connector, source=source).blows:
            crashes += blow.fault.crashes + (blow.fault.opener.crashes if blow.fault.opener else 0)
            if crashes > 20:
                break
            found.add(blow.fault.name)
        assert wanted <= found
        assert len(plan_round(1, number, connector, source=source).blows) <= FAULTS_MAX


def test_rows_of_other_sources_are_never_too_large() -> None:
    assert not is_possible("letters", "kafka", "http")
    plans = [plan_round(1, number, "kafka", source="http") for number in ROUNDS]
    assert {plan.query for plan in plans} == {"unchanged", "hdfs", "rocksdb"}


@pytest.mark.parametrize("source", sorted(way.SERVERLESS))
def test_of_what_has_no_server_none_dies(source: str) -> None:
    found = names(source)
    assert not {name for name in found if name.startswith("kill source")}
    assert {"kill link.after_put", "kill driver at link.after_put"} <= found


def test_sinks_by_key_are_counted_by_one_beside_them() -> None:
    options = CampaignOptions(crashes=1, source="socket", connectors=("redis",))
    with pytest.raises(ConfigurationError, match="nobody can count how much of socket redis has") as found:
        run_campaign(options, Console(quiet=True))
    assert "--sink files+redis" in found.value.next_step
    for given in ({"source": "rabbitmq-no-ids"}, {"source": "socket", "early": True}):
        options = CampaignOptions(crashes=1, connectors=("files+cassandra",), **given)
        with pytest.raises(ConfigurationError, match="may come again"):
            run_campaign(options, Console(quiet=True))


def test_rows_for_a_sink_by_key_have_their_numbers_as_keys() -> None:
    """Others' keys say nothing of which row is newer, where a feed gives rows again behind later ones."""
    went_in = [
        Input(0, "a", 0, b"same", row(17, 0, 0, "")),
        Input(1, "a", 1, b"same", b'{"id": 18}'),
        Input(2, "a", 2, None, b"19"),
    ]
    assert [each.key for each in keyed.numbered(went_in)] == [b"17", b"18", b"19"]
    flow: Any = Mock(inputs=lambda: went_in)
    own = msgspec.structs.replace(ANY, key=keyed.NUMBERED)
    assert [each.key for each in watch.inputs(own, flow)] == [b"17", b"18", b"19"]
    assert [each.key for each in watch.inputs(ANY, flow)] == [b"same", b"same", None]
    source: Any = Mock(key="id")
    connectors = ("files", "files+redis", "kinesis+socket", "socket")
    assert [making._key(source, each) == keyed.NUMBERED for each in connectors] == [False, True, True, False]


# ------------------------------------------------------------------------- without a server
def test_a_collection_is_there_from_the_start_and_its_offsets_tell_its_rows(tmp_path: Path) -> None:
    workload = replace(plan_round(1, 1, "files", source="collection").workload, repeated=0.2)
    flow = SOURCES["collection"](tmp_path).flow("x", workload, Place(tmp_path))
    flow.start()
    lines = (tmp_path / "collection.txt").read_bytes().split(b"\n")
    assert [each.value for each in flow.inputs()] == lines
    assert flow.distinct == len(set(lines)) < len(lines) == flow.stop()
    assert all(map(is_whole, lines))
    told = ['{"rows": 40, "fingerprint": "f"}']
    assert flow.ends_of is not None
    assert flow.ends_of({0: told, 1: []}) == {0: {"collection/0": 40}}
    assert not flow.is_read(f"v1\n{{}}\n{told[0]}")
    assert not flow.is_read("")
    assert flow.is_read(f'v1\n{{}}\n{{"rows": {len(lines)}}}')


def test_which_files_an_epoch_has_read_their_list_in_the_checkpoint_says(tmp_path: Path) -> None:
    """Lists that are folded together hold those before them, and one that is being written is read later."""
    workload = replace(plan_round(1, 1, "files", source="files").workload, per_epoch=8)
    flow: Any = SOURCES["files"](tmp_path).flow("x", workload, Place(tmp_path))
    values = [row(number, 0, number, "") for number in range(7)]
    for value in values:
        flow._produce(0, "", value)
        flow._flush()
    assert flow._finish() == 0  # nobody counted: the feeder does
    names = sorted(path.name for path in (tmp_path / "incoming").iterdir())
    assert names == [f"{number:08d}.txt" for number in range(4)]
    lists = tmp_path / "checkpoint" / "sources" / "0"
    lists.mkdir(parents=True)

    def entry(name: str, batch: int) -> str:
        return json.dumps({"path": f"file:///somewhere/{name}", "timestamp": 1, "batchId": batch})

    (lists / "0.compact").write_text("\n".join(["v1", entry(names[2], 0), entry(names[0], 1)]))
    (lists / "2").write_text("v1")
    offsets = 'v1\n{}\n{"logOffset":%d}'
    assert flow.rows_until(offsets % 0) == 2
    assert not flow.is_read(offsets % 2)
    (lists / "2").write_text("\n".join(["v1", entry(names[1], 2), entry(names[3], 2)]))
    assert flow.is_read(offsets % 2)
    assert not flow.is_read("")
    order = [4, 5, 0, 1, 2, 3, 6]
    assert [(each.position, each.value) for each in flow.inputs()] == [
        (position, values[number]) for position, number in enumerate(order)
    ]
    assert flow.ends_of({0: ['{"logOffset":0}'], 1: ['{"logOffset":2}'], 2: []}) == {
        0: {"files/0": 2},
        1: {"files/0": 7},
    }


class Reading:
    """A session that notes what is read."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.readStream = self

    def format(self, name: str) -> Reading:
        self.done.append(name)
        return self

    def options(self, **given: str) -> Reading:
        self.done.append(given)
        return self

    def load(self) -> Reading:
        return self

    def selectExpr(self, *columns: str) -> Reading:  # noqa: N802  as in Spark
        self.done.append(columns)
        return self


def test_a_job_reads_what_its_task_names() -> None:
    spark: Any = Reading()
    task = Task(
        servers="", source="", target="", files="", checkpoint="", connector="files", guarantee="", per_epoch=1,
        format="onceonly.http", read={"url": "there"}, key="id",
    )  # fmt: skip
    job.rows(spark, task)
    assert spark.done == ["onceonly.http", {"url": "there"}, ("id as key", "cast(value as string) as value")]


def test_a_job_gives_a_collection_as_whoever_has_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = plan_round(1, 1, "files", source="collection").workload
    flow = SOURCES["collection"](tmp_path).flow("x", workload, Place(tmp_path))
    task = msgspec.structs.replace(ANY, format=way.format_of("collection"), read=flow.options())
    given: list[Any] = []
    monkeypatch.setattr("onceonly.collection", lambda *told, **more: given.append((told, more)))
    spark: Any = object()
    job.read(spark, task)
    [((_, rows_, schema), more)] = given
    assert [line.encode() for (line,) in rows_] == [each.value for each in flow.inputs()]
    assert schema == "value string"
    assert more == {"rows_per_epoch": 20, "partitions": min(workload.partitions, 2)}


# ------------------------------------------------------------------------------------------- audit
def test_of_a_stream_the_offset_tells_where_an_epoch_ends_and_what_is_for_people_is_passed_over() -> None:
    behind = '"onceonly.behind":{"offset":3}'
    assert _ends([f'{{"version":1,"offset":17,"mark":"a","is_read":true,{behind}}}']) == {"stream/0": 18}
    assert _ends([f'{{"version":1,"offset":17,"mark":"a","is_read":false,{behind}}}']) == {"stream/0": 17}
    assert (
        _ends(['{"number":4,"start":{"shard":{"kind":"after","value":"9"}},"onceonly.behind.ms":{"a":1}}'])
        == {}
    )
    assert _ends(['{"journal":"a","reader":"b","segment":4}']) == {}


def test_of_kinesis_the_next_offset_and_of_the_newest_its_ranges_tell_where_an_epoch_ends(
    tmp_path: Path,
) -> None:
    """Of ``a``, which was split, three records were read and then one; of its children, none and then two."""

    class Server:
        def client(self) -> None:
            """Nobody asks it."""

        def shards(self, _stream: str) -> dict[str, list[dict[str, str]]]:
            of = {"a": "1234", "b": "", "c": "567"}
            return {shard: [{"SequenceNumber": each} for each in numbers] for shard, numbers in of.items()}

    server: Any = Server()
    workload: Any = plan_round(1, 1, "files", source="kinesis").workload
    flow = Shards(server, "stream", workload, Place(tmp_path))

    def offset(number: int, start: dict[str, list[str]], *done: str) -> str:
        told = {"reader": "r", "number": number, "start": start, "done": done, "groups": [list(start)]}
        return json.dumps(told)

    def fix(number: int, **ends: list[str]) -> None:
        path = tmp_path / "ranges" / "r" / f"{number:020d}.0.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        told = {shard: {"position": position} for shard, position in ends.items()}
        path.write_text("a header\n" + json.dumps({"ends": told}))

    children = {"b": ["trim_horizon", ""], "c": ["trim_horizon", ""]}
    barriers = {
        0: [offset(1, {"a": ["trim_horizon", ""]})],
        1: [offset(2, {"a": ["after", "3"]})],
        2: [offset(3, children, "a")],
        3: [offset(3, children, "a")],  # an epoch without news
    }
    first = {0: {"a": 3}, 1: {"a": 4, "b": 0, "c": 0}}
    assert flow.ends_of(barriers) == first
    fix(3, b=["trim_horizon", ""], c=["after", "6"])
    newest = {"a": 4, "b": 0, "c": 2}
    assert flow.ends_of(barriers) == {**first, 2: newest, 3: newest}


def test_a_stream_of_kinesis_is_read_when_the_ranges_of_the_newest_epoch_end_with_all_of_it(
    tmp_path: Path,
) -> None:
    class Server:
        def client(self) -> None:
            """Nobody asks it."""

        def shards(self, _stream: str) -> dict[str, list[dict[str, Any]]]:
            given = {"PartitionKey": "k"}
            return {
                shard: [
                    {"SequenceNumber": f"{shard}{at}", "Data": row(at, partition, at, ""), **given}
                    for at in range(2)
                ]
                for partition, shard in enumerate("ab")
            }

    server: Any = Server()
    flow = Shards(server, "stream", plan_round(1, 1, "files", source="kinesis").workload, Place(tmp_path))
    told = {"reader": "r", "number": 3, "start": {}, "done": ["a"], "groups": [["b"]]}
    offsets = f"v1\n{{}}\n{json.dumps(told)}"
    path = tmp_path / "ranges" / "r" / f"{3:020d}.0.json"
    path.parent.mkdir(parents=True)
    assert not flow.is_read(offsets)
    for end, is_read in (("b0", False), ("b1", True)):
        path.write_text("a header\n" + json.dumps({"ends": {"b": {"position": ["after", end]}}}))
        assert flow.is_read(offsets) == is_read
    assert not flow.is_read("")
    assert not flow.is_read(offsets.replace('["a"]', "[]"))


class Kept:
    """A journal that is written, read and tidied, and a campaign that keeps its segments."""

    def __init__(self, folder: Path) -> None:
        self.kept = journal.Kept(Folders(), str(folder / "journal"), folder / "segments")
        self.writer = opened(folder / "journal")
        self.reader = Reader(Journal.at(str(folder / "journal")), wait_s=0)
        self.barriers = {-1: [json.dumps(self.reader.initial().offset)]}

    def epoch(self, *segments: list[str]) -> None:
        """Write segments, keep them, read them for good, and have the writer delete what it may."""
        for each in segments:
            self.writer.append(rows(*each))
        self.kept.take()
        number = len(self.barriers) - 1
        self.barriers[number] = [json.dumps({"journal": "a", "reader": "b", "segment": self.writer.newest})]
        self.reader.commit(self.writer.newest)
        self.writer.tidy(now=True)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    made = Kept(tmp_path)
    made.epoch(["a", "b"], ["c"])
    made.epoch(["d"])
    made.epoch(["e", "f"])
    return made


def test_a_journal_on_a_store_is_kept_as_one_in_a_folder_is_though_its_server_dies(tmp_path: Path) -> None:
    """Its address is beside its checkpoint's, and whoever receives into it is told how to get there."""
    with opened(tmp_path / "journal") as writer:
        for each in "ab":
            writer.append(rows(each))
    files = {
        f"campaign/round-journal/{path.relative_to(tmp_path / 'journal')}": path.read_bytes()
        for path in (tmp_path / "journal").rglob("*") if path.is_file()
    }  # fmt: skip
    dead = [False]

    def names(folder: str) -> list[str]:
        if dead[0]:
            raise OSError(folder)
        return [name.rpartition("/")[2] for name in files if name.rpartition("/")[0] == folder]

    store: Any = _Served("s3a://bucket", names, files.get)
    store.conf = {"spark.hadoop.fs.s3a.endpoint": "there", "spark.jars": "some"}
    place = Place(tmp_path / "campaign" / "round", {"ARMED": "yes"}, store)
    place.folder.mkdir(parents=True)
    assert place.at("journal") == "s3a://bucket/campaign/round-journal"
    kept = journal.Kept(store, place.at("journal"), place.folder / "segments")
    kept.take()
    dead[0] = True
    assert [each.position for each in kept.located(WENT_IN[:3])] == [0, 1, 12]
    receiver: Any = journal.Receiver("http", {"journal": place.at("journal"), "url": "x"}, place)
    assert (place.folder / "receiver.conf").read_text() == "spark.hadoop.fs.s3a.endpoint there\n"
    assert receiver._command[-7:] == [
        "--hadoop-conf", str(place.folder / "receiver.conf"), "http",
        "-o", "journal=s3a://bucket/campaign/round-journal", "-o", "url=x",
    ]  # fmt: skip
    assert receiver._has_begun()


def test_only_what_has_a_journal_or_ranges_can_have_them_on_a_store() -> None:
    options = CampaignOptions(crashes=1, source="rabbitmq-stream", connectors=("files",), store="s3+journals")
    with pytest.raises(ConfigurationError, match="without a journal and without ranges"):
        run_campaign(options, Console(quiet=True))


ROWS = [f"row {each}".encode() for each in "abcdefg"]
WENT_IN = [Input(number, "http/0", 10 + number, None, value) for number, value in enumerate(ROWS)]


def test_of_a_journal_that_deletes_what_was_read_each_rows_epoch_is_known(kept: Kept, tmp_path: Path) -> None:
    assert len(list((tmp_path / "journal" / "segments").iterdir())) < 4
    assert kept.kept.ends_of(kept.barriers) == {
        -1: {"journal/0": 0}, 0: {"journal/0": 3}, 1: {"journal/0": 4}, 2: {"journal/0": 6},
    }  # fmt: skip
    found = kept.kept.located(WENT_IN)
    assert [(each.partition, each.position) for each in found] == [
        *(("journal/0", number) for number in range(6)),
        ("http/0", 16),
    ]
    assert [each.id for each in found] == list(range(7))


def test_who_asks_for_the_newest_segment_does_not_keep_one_beside_the_thread_that_does(
    tmp_path: Path,
) -> None:
    class Slow(Folders):
        inside = most = 0

        def names(self, address: str) -> list[str]:
            return ["1"]

        def data(self, address: str, name: str) -> bytes:
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.05)
            self.inside -= 1
            return b""

    store = Slow()
    kept = journal.Kept(store, "", tmp_path)
    threads = [threading.Thread(target=kept.newest) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (store.most, kept.newest()) == (1, 1)


@pytest.mark.parametrize("source", sorted(way.JOURNALED))
def test_a_feed_is_not_read_while_its_journal_has_more_than_an_epoch_names(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long an epoch takes on a machine that is busy; and then nobody can tell what is still to come."""
    for name in ("start", "allow"):
        monkeypatch.setattr(feeds.EmbeddedFeed, name, lambda *_: None)
    workload: Any = replace(plan_round(1, 1, "files", source=source).workload)
    server: Any = Mock(uri="amqp://")
    if source in {"rabbitmq", "rabbitmq-no-ids"}:
        flow: Any = Messages(server, "queue", workload, Place(tmp_path), asked=source == "rabbitmq")
    else:
        kind = {"http-no-resume": "live"}.get(source, source)
        flow = Numbers(kind, workload, Place(tmp_path), {})
    with opened(tmp_path / "journal") as writer:
        for each in "ab":
            writer.append(rows(each))
    offsets = [f'v1\n{{}}\n{{"journal":"a","reader":"b","segment":{number}}}' for number in (1, 2)]
    assert [flow.is_read(each) for each in ("", *offsets)] == [False, False, None]
    assert flow.came_again == {}


def test_of_a_stream_nothing_comes_again(tmp_path: Path) -> None:
    server: Any = Mock()
    workload: Any = plan_round(1, 1, "files", source="rabbitmq-stream").workload
    for flow in (Offsets(server, "stream", workload), Shards(server, "stream", workload, Place(tmp_path))):
        assert flow.came_again == {}


def test_a_segment_that_nobody_has_kept_leaves_nothing_to_judge(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "segments" / f"{2:020d}").unlink()
    for work in (lambda: kept.kept.located(WENT_IN), lambda: kept.kept.ends_of(kept.barriers)):
        with pytest.raises(UnavailableError, match="was deleted before the campaign had kept it"):
            work()


def test_a_row_over_a_journal_that_is_seen_before_its_decision_is_named(kept: Kept) -> None:
    """As of a sink that writes early: its epoch is decided at 10 s for each that came before."""
    ends = kept.kept.ends_of(kept.barriers)
    ranges = [(ends[epoch - 1]["journal/0"], ends[epoch]["journal/0"]) for epoch in range(3)]
    decisions = [
        Decision(
            epoch=epoch,
            kind=LinkKind.COMMIT,
            ranges={"journal/0": span},
            slots=(Slot("files", 0, span[1] - span[0]),),
            decided_s=10.0 * (1 + epoch),
            receipt=True,
        )
        for epoch, span in enumerate(ranges)
    ]
    inputs = kept.kept.located(WENT_IN)[:6]

    def seen(late_s: float) -> World:
        moments = [10.0, 10.0, 10.0, 20.0, 30.0, 30.0]
        found = [
            Seen("files", None, row.value, seen_s=at + late_s)
            for row, at in zip(inputs, moments, strict=True)
        ]
        return World(sinks=("files",), inputs=inputs, at_end=found, during=found, decisions=decisions)

    assert judge(seen(0.1)).is_clean
    early = judge(seen(-0.1))
    assert early.anomalies[Anomaly.VISIBLE_BEFORE_DECISION] == 6
    assert "was decided 0.100 s later" in early.examples[0]


def test_what_is_in_a_journal_no_sink_may_lack_though_no_epoch_has_read_all_of_it(kept: Kept) -> None:
    decision = Decision(epoch=0, kind=LinkKind.COMMIT, ranges={"journal/0": (0, 4)}, receipt=True)
    world = World(sinks=("files",), inputs=kept.kept.located(WENT_IN), at_end=[], decisions=[decision])
    found, lost = watch.arrived(world)
    assert (lost, judge(found).anomalies[Anomaly.LOST]) == (1, 6)


def test_a_journal_tells_where_rows_without_names_came_again(tmp_path: Path) -> None:
    with opened(tmp_path / "journal") as writer:
        for _ in range(2):
            writer.append(rows(None, None))
        writer.append(rows("a"))
    kept = journal.Kept(Folders(), str(tmp_path / "journal"), tmp_path / "segments")
    nameless = Input(0, "queue/0", 0, None, b"row None")
    assert [(each.partition, each.position) for each in kept.located([nameless])] == [("journal/0", 0)]
    assert kept.again() == {b"row None": [1, 2, 3]}


def came_again(*shown: tuple[bytes, int, float], end: int = 4) -> World:
    """Of two epochs, ``b`` came in each; and ``shown`` was seen in one file: value, line, and when."""
    went_in = [Input(number, "journal/0", at, None, value) for number, (at, value) in enumerate(
        ((0, b"a"), (1, b"b"), (3, b"c")))]  # fmt: skip
    seen = [Seen("files", None, value, "a file", line, seen_s=at) for value, line, at in shown]
    decisions = [
        Decision(
            epoch=epoch, kind=LinkKind.COMMIT, ranges={"journal/0": (first, last)}, receipt=True,
            decided_s=10.0 * epoch, slots=(Slot("files", 0, last - first),),
        )
        for epoch, (first, last) in enumerate(((0, 2), (2, end)))
    ]  # fmt: skip
    # Those who find files by a pattern get each row, too, and somewhat later.
    during = [*seen, *(replace(row, seen_s=(row.seen_s or 0.0) + 0.5) for row in seen)]
    world = World(sinks=("files",), inputs=went_in, at_end=seen, during=during, decisions=decisions)
    return watch.told_apart(world, {b"b": [2]})


ONCE_EACH = ((b"a", 0, 1.0), (b"b", 1, 1.0), (b"b", 2, 11.0), (b"c", 3, 11.0))


def test_rows_that_came_into_the_journal_again_are_due_as_often_as_they_did() -> None:
    assert judge(watch.judged(ANY, came_again(*ONCE_EACH), is_ordered=False)).is_clean


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (ONCE_EACH[:2] + ONCE_EACH[3:], Anomaly.LOST),  # not as often as it came
        ((*ONCE_EACH, (b"b", 4, 12.0)), Anomaly.DUPLICATED),  # more often
        ((*ONCE_EACH, (b"c", 4, 12.0)), Anomaly.DUPLICATED),  # one that came once
        ((*ONCE_EACH[:2], (b"b", 2, 9.0), ONCE_EACH[3]), Anomaly.VISIBLE_BEFORE_DECISION),
        ((*ONCE_EACH, (b"d", 4, 12.0)), Anomaly.FOREIGN),
    ],
)
def test_what_came_again_hides_no_anomaly(
    shown: tuple[tuple[bytes, int, float], ...], found: Anomaly
) -> None:
    counts = judge(watch.judged(ANY, came_again(*shown), is_ordered=False)).anomalies
    assert {name for name, count in counts.items() if count and name != Anomaly.TORN_TRANSACTION} == {found}


def test_the_log_is_held_against_what_came_again_too() -> None:
    """An epoch that says of fewer rows than came between its barriers has left out one that came again."""
    assert (
        judge(watch.judged(ANY, came_again(*ONCE_EACH, end=3), is_ordered=False)).anomalies[
            Anomaly.LOG_MISMATCH
        ]
        == 0
    )
    whole = came_again(*ONCE_EACH)
    first, last = whole.decisions or ()
    short = replace(whole, decisions=[first, replace(last, slots=(Slot("files", 0, 1),))])
    assert judge(watch.judged(ANY, short, is_ordered=False)).anomalies[Anomaly.LOG_MISMATCH] == 1


def test_a_source_without_names_cannot_be_counted_by_window() -> None:
    assert not is_possible("window", "files", "rabbitmq-no-ids")
    assert is_possible("window", "files", "rabbitmq")
    options = CampaignOptions(crashes=1, source="rabbitmq-no-ids", connectors=("files",), query="window")
    with pytest.raises(
        ConfigurationError, match="may come again, and nobody knows what a window is to count"
    ):
        run_campaign(options, Console(quiet=True))


@pytest.mark.parametrize(
    ("source", "format_"),
    [
        ("rabbitmq-no-ids", "onceonly.rabbitmq"),
        ("http-no-resume", "onceonly.http"),
        ("rabbitmq-stream", "onceonly.rabbitmq.stream"),
        ("files", "text"),
    ],
)
def test_another_use_of_a_feed_is_read_by_its_format(source: str, format_: str) -> None:
    assert way.format_of(source) == format_


def test_what_never_arrived_is_counted_and_what_one_sink_has_shown_no_other_may_lack() -> None:
    went_in = [Input(number, "socket/0", number, None, b"%d" % number) for number in range(4)]
    rows = [Seen(sink, None, b"%d" % number) for sink in ("kafka", "files") for number in (0, 2)]
    foreign = Seen("files", None, b"9")
    world = World(sinks=("kafka", "files"), inputs=went_in, at_end=[*rows, foreign])
    found, lost = watch.arrived(world)
    assert lost == 2
    counts = judge(found).anomalies
    assert (counts[Anomaly.LOST], counts[Anomaly.FOREIGN]) == (0, 1)

    found, lost = watch.arrived(World(sinks=("kafka", "files"), inputs=went_in, at_end=rows[:3]))
    assert (lost, judge(found).anomalies[Anomaly.LOST]) == (2, 1)


def test_a_source_that_is_read_in_several_tasks_keeps_no_order() -> None:
    went_in = [Input(number, "http/0", number, None, b"%d" % number) for number in range(2)]
    rows = [Seen("files", None, b"%d" % number, "a", 1 - number) for number in range(2)]
    world = World(sinks=("files",), inputs=went_in, at_end=rows)
    for is_ordered in (True, False):
        found = judge(watch.judged(ANY, world, is_ordered=is_ordered))
        assert bool(found.anomalies[Anomaly.OUT_OF_ORDER]) == is_ordered


# ------------------------------------------------------------------------------------------ report
def test_a_report_counts_what_came_again() -> None:
    again = of("rabbitmq-no-ids", came_again=6)
    (line,) = fold(again, of("rabbitmq-no-ids", number=4, came_again=3)).matrix
    assert (line.promise, line.came_again) == ("exactly-once from the journal on", 9)
    _, whole = blocks(fold(one()), records(fold(again)))
    assert (
        "| rabbitmq-no-ids | files | exactly-once from the journal on | 1,200 | 7 | 1,200 | 4,000 |  | 6 | 0 |"
        in whole
    )


def test_a_report_names_the_source_and_keeps_it_apart() -> None:
    report = fold(one(), of("http"), of("socket", number=3, never_taken=5))
    assert [(row.way, row.promise, row.replays, row.never_taken) for row in report.matrix] == [
        ("http → files", "exactly-once", 7, 0),
        ("socket → files", "exactly-once from the journal on", 7, 5),
        ("kafka", "exactly-once", 0, 0),
    ]
    assert " --source http" in of("http").command
    assert "--source" not in one().command
    assert [each.file for each in records(report)] == [
        "from-http-files.json",
        "from-socket-files.json",
        "kafka.json",
    ]


def test_the_docs_page_has_a_table_of_sources_and_the_readme_has_none() -> None:
    kept = records(fold(of("http"), of("socket", number=3, never_taken=5)))
    in_short, whole = blocks(fold(one()), kept)
    assert "| http | files | exactly-once | 1,200 | 7 | 1,200 | 4,000 |  |  | 0 | clean | ? |" in whole
    assert (
        "| socket | files | exactly-once from the journal on | 1,200 | 7 | 1,200 | 4,000 | 5 |  | 0 | clean |"
        in whole
    )
    assert "| kafka | exactly-once | 1,200 |" in whole
    assert "http" not in in_short
    assert "1,200 crashes; 1,200 of" in in_short
