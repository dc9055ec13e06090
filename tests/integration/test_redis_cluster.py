"""The Redis sink on a real cluster of three: slots that move, nodes that die, and one that forgets alone."""

from __future__ import annotations

import shutil
import threading
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import redis as client
from keyed_bench import KeyedBench
from test_redis import CONTEXT, ops, rows

from onceonly.errors import (
    ConfigurationError,
    RecordRefusedError,
    TargetBehindError,
    UnavailableError,
    WriteFailedError,
)
from onceonly.families.staged.sink import named
from onceonly.model import AlreadyCommitted, Committed, Guarantee
from onceonly.sinks.redis import RedisSink
from onceonly.sinks.redis.slots import slot_of
from onceonly_proof.embedded.redis import EmbeddedRedis
from onceonly_proof.embedded.redis_cluster import EmbeddedRedisCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration
MANY = {f"k{number}": str(number) for number in range(300)}


class Bench(KeyedBench[RedisSink]):
    """A query's sinks on one cluster, under a prefix of its own."""

    def __init__(self, cluster: EmbeddedRedisCluster, folder: Path, **options: str) -> None:
        self.cluster = cluster
        own = {"url": cluster.url, "key": "key", "prefix": f"{uuid.uuid4().hex}:", "staging": str(folder)}
        super().__init__(RedisSink, {**own, **options})

    def seen(self) -> dict[str, str | None]:
        """Read each node by itself, and see that no key is on two."""
        prefix = self.options["prefix"]
        found: dict[str, str | None] = {}
        for node in self.cluster.nodes:
            made: Any = client.Redis(port=node.port, decode_responses=True)
            with closing(made) as reader:
                for name in reader.scan_iter(match=f"{prefix}*", count=1000, _type="hash"):
                    row = reader.hgetall(name)
                    if "onceonly.version" in row and "onceonly.deleted" not in row:
                        assert name not in found
                        found[name.removeprefix(prefix)] = row.get("value")
        return found

    def node_of(self, key: str) -> EmbeddedRedis:
        slot = slot_of(self.options["prefix"] + key)
        return self.cluster.nodes[slot * 3 // 16384]

    def keys_on(self, node: EmbeddedRedis) -> set[str]:
        return {key for key in MANY if self.node_of(key) is node}

    def other_than(self, key: str) -> EmbeddedRedis:
        return next(node for node in self.cluster.nodes if node is not self.node_of(key))

    def forget(self, node: EmbeddedRedis) -> None:
        """Let a node lose all that it has not saved."""
        node.kill()
        node.start()
        self.cluster.wait_ready()


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedRedisCluster]:
    with EmbeddedRedisCluster() as cluster:
        yield cluster


@pytest.fixture
def bench(shared: EmbeddedRedisCluster, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(shared, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def unsaved() -> Iterator[EmbeddedRedisCluster]:
    with EmbeddedRedisCluster(settings={"appendonly": "no"}) as cluster:
        yield cluster


@pytest.fixture
def forgetful(unsaved: EmbeddedRedisCluster, tmp_path: Path) -> Iterator[Bench]:
    """A cluster of which each node forgets, once it was killed, all that came behind chk-1."""
    made = Bench(unsaved, tmp_path)
    made.committed(rows(**MANY), epoch=1)
    for node in unsaved.nodes:
        unsaved.call(node, "SAVE")
    yield made
    made.close()


# --- rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
def test_rows_of_all_nodes_are_put_once_and_the_late_one_loses(bench: Bench, early: bool) -> None:  # noqa: FBT001
    late = bench.sink()
    attempt = late.begin_transaction(bench.context(5, early=early))
    if not early:
        late.write(attempt, rows(**MANY))
        waiting = late.pre_commit(attempt)
    newer = dict.fromkeys(MANY, "new")
    handle = bench.committed(rows(**newer), epoch=6, early=early)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    if early:
        with pytest.raises(WriteFailedError, match="later epoch"):
            late.write(attempt, rows(**MANY))
    else:
        assert waiting is not None
        late.commit(waiting)
    assert bench.seen() == newer
    assert list(bench.sink().versions().values()) == [len(MANY)]


def test_deleted_keys_stay_so_and_rows_of_one_slot_keep_their_order(bench: Bench) -> None:
    bench.options |= {"op": "op"}
    bench.committed(ops(a="c", b="c", c="c"), epoch=1)
    bench.committed(ops(a="d", b="u", c="d"), epoch=2)
    assert set(bench.seen()) == {"b"}
    late = bench.sink()
    with pytest.raises(WriteFailedError, match="later epoch"):
        late.write(late.begin_transaction(bench.context(1, early=True)), ops(a="u"))
    twice = pa.RecordBatch.from_pydict(
        {"key": ["{t}1", "z", "{t}1"], "value": ["v", "z", "w"], "op": ["c"] * 3}
    )
    sink = bench.sink()
    sink.write(sink.begin_transaction(bench.context(3, guarantee=Guarantee.AT_LEAST_ONCE)), twice)
    assert bench.seen() == {"b": "v", "{t}1": "w", "z": "z"}


def test_a_prefix_with_a_hash_tag_keeps_all_in_one_slot(bench: Bench) -> None:
    bench.options["prefix"] = f"{{{bench.options['prefix']}}}:"
    handle = bench.committed(rows(**MANY))
    bench.sink().look_back(CONTEXT, 0, [handle])
    assert bench.seen() == MANY


def test_names_of_witnesses_are_no_rows(bench: Bench) -> None:
    sink = bench.sink()
    for own in ("onceonly:books", "onceonly:books:q", "onceonly:witness:7"):
        with pytest.raises(RecordRefusedError, match="where the sink notes"):
            sink.write(sink.begin_transaction(bench.context()), rows(**{own: "x"}))


# --- slots that move --------------------------------------------------------------------------------------------


def test_slots_that_move_between_two_epochs_lose_nothing_and_raise_no_alarm(bench: Bench) -> None:
    sink = bench.sink()
    assert sink.commit(bench.staged(rows(**MANY), epoch=1)) == Committed()
    moved = sorted(MANY)[:10]
    for key in moved:
        slot, to = slot_of(bench.options["prefix"] + key), bench.other_than(key)
        bench.cluster.move(slot, to)
    try:
        handle = bench.staged(rows(**dict.fromkeys(moved[:5], "new")), epoch=2)
        assert sink.commit(handle) == Committed()
        bench.sink().look_back(CONTEXT, 2, [handle])
        assert bench.seen() == MANY | dict.fromkeys(moved[:5], "new")
    finally:
        for key in moved:
            bench.cluster.move(slot_of(bench.options["prefix"] + key), bench.node_of(key))


def test_a_slot_that_moves_while_an_epoch_is_applied_gets_all_its_rows(bench: Bench) -> None:
    tagged = {f"{{t}}{number}": "old" for number in range(20)}
    bench.committed(rows(**tagged), epoch=1)
    slot, to = slot_of("{t}"), bench.other_than("{t}0")
    sink, begun, applied = bench.sink(), threading.Event(), threading.Event()

    def half() -> None:
        begun.set()
        applied.wait(0.5)  # rows are on both nodes meanwhile

    moving = threading.Thread(target=lambda: bench.cluster.move(slot, to, until=half))
    newer = {**dict.fromkeys(tagged, "new"), "{t}more": "new", **MANY}
    handle = bench.staged(rows(**newer), epoch=2)
    moving.start()
    begun.wait(10)
    try:
        assert sink.commit(handle) == Committed()
    finally:
        applied.set()
        moving.join()
    try:
        assert bench.seen() == newer
        bench.sink().look_back(CONTEXT, 2, [handle])
    finally:
        bench.cluster.move(slot, bench.node_of("{t}0"))


def test_one_row_whose_slot_is_moving_is_put_where_it_goes(bench: Bench) -> None:
    bench.committed(rows(a="1"), epoch=1)
    slot, to = slot_of(bench.options["prefix"] + "a"), bench.other_than("a")
    said: list[object] = []

    def meanwhile() -> None:
        said.append(bench.sink().commit(bench.staged(rows(a="2", b="2"), epoch=2)))

    bench.cluster.move(slot, to, until=meanwhile)
    assert said == [Committed()]
    assert bench.seen() == {"a": "2", "b": "2"}
    bench.cluster.move(slot, bench.node_of("a"))


# --- nodes that die ---------------------------------------------------------------------------------------------


def test_while_a_node_is_down_the_query_waits_and_goes_on(bench: Bench) -> None:
    sink, handle = bench.sink(timeout="5 seconds"), bench.staged(rows(**MANY))
    node = bench.cluster.nodes[1]
    node.kill()
    for _ in range(2):  # at first the node is gone, then the cluster says so
        with pytest.raises(UnavailableError):
            sink.commit(handle)
        _until_down(bench.cluster)
    with pytest.raises(UnavailableError):
        bench.sink().check(CONTEXT)
    node.start()
    bench.cluster.wait_ready()
    assert sink.commit(handle) == Committed()
    assert bench.seen() == MANY


def _until_down(cluster: EmbeddedRedisCluster) -> None:
    from onceonly_proof.conformance.world import wait_for

    assert wait_for(lambda: b"cluster_state:fail" in cluster.call(cluster.nodes[0], "CLUSTER", "INFO"))


def test_rows_that_a_node_loses_before_the_books_are_noted_are_put_again(
    forgetful: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = dict.fromkeys(MANY, "2")
    sink, handle = forgetful.sink(), forgetful.staged(rows(**newer), epoch=2)
    node = _without_books(forgetful)
    with monkeypatch.context() as patch:
        real = sink.seal

        def late(*given: Any) -> None:  # noqa: ANN401  those of seal
            forgetful.forget(node)
            real(*given)

        patch.setattr(sink, "seal", late)
        with pytest.raises(UnavailableError, match="while rows of chk-2 were written"):
            sink.commit(handle)
    assert not sink.known(named([handle]))
    assert sink.commit(handle) == Committed()
    assert forgetful.seen() == newer


def test_rows_that_a_node_loses_after_the_books_were_noted_stop_the_query(forgetful: Bench) -> None:
    newer = dict.fromkeys(MANY, "2")
    sink, handle = forgetful.sink(), forgetful.staged(rows(**newer), epoch=2)
    assert sink.commit(handle) == Committed()
    node = _without_books(forgetful)
    lost = forgetful.keys_on(node)
    forgetful.forget(node)
    assert forgetful.seen() == newer | {key: MANY[key] for key in lost}
    assert sink.known(named([handle]))  # the books are on another node, and have it
    with pytest.raises(TargetBehindError, match=r"lacks rows of query q behind chk-1 up to chk-2"):
        forgetful.sink().look_back(CONTEXT, 2, [handle])
    other = forgetful.staged(rows(**{next(iter(MANY.keys() - lost)): "3"}), epoch=3)
    for again in (sink, forgetful.sink()):
        with pytest.raises(TargetBehindError, match="lacks rows of query q"):
            again.commit(other)
    going_on = forgetful.sink(**{"onceonly.target.behind": "go-on"})
    going_on.look_back(CONTEXT, 2, [handle])
    assert going_on.commit(other) == Committed()
    forgetful.sink().look_back(CONTEXT, 3, [other])  # it was told once


def test_a_node_that_is_emptied_under_a_running_query_is_noticed_by_the_next_epoch(forgetful: Bench) -> None:
    sink = forgetful.sink()
    assert sink.commit(forgetful.staged(rows(**MANY), epoch=2)) == Committed()
    node = _without_books(forgetful)
    forgetful.cluster.call(node, "FLUSHALL")
    with pytest.raises(TargetBehindError, match=r"lacks rows of query q up to chk-2"):
        sink.commit(forgetful.staged(rows(**dict.fromkeys(MANY, "3")), epoch=3))
    with pytest.raises(TargetBehindError, match="lacks rows"):
        forgetful.sink().look_back(CONTEXT, 1, [])


def test_an_older_dump_of_one_node_stops_the_next_start_also_when_slots_have_moved(
    forgetful: Bench, tmp_path: Path
) -> None:
    node = _without_books(forgetful)
    shutil.copy(node.directory / "dump.rdb", tmp_path / "yesterday.rdb")
    handle = forgetful.committed(rows(**dict.fromkeys(MANY, "2")), epoch=2)
    to = next(each for each in forgetful.cluster.nodes if each is not node)
    moved = {slot_of(forgetful.options["prefix"] + key) for key in sorted(forgetful.keys_on(node))[:5]}
    for slot in moved:
        forgetful.cluster.move(slot, to)
    try:
        forgetful.sink().look_back(CONTEXT, 2, [handle])
        node.kill()
        shutil.copy(tmp_path / "yesterday.rdb", node.directory / "dump.rdb")
        node.start()
        forgetful.cluster.wait_ready()
        with pytest.raises(TargetBehindError, match=r"behind chk-1 up to chk-2, in \d+ slots"):
            forgetful.sink().look_back(CONTEXT, 2, [handle])
    finally:
        for slot in moved:
            forgetful.cluster.move(slot, node)


def test_rows_seen_early_that_a_node_loses_are_written_again_or_told_of(forgetful: Bench) -> None:
    newer = dict.fromkeys(MANY, "2")
    sink, handle = forgetful.sink(), forgetful.staged(rows(**newer), epoch=2, early=True)
    sink.rehearse([handle], {})
    forgetful.forget(_without_books(forgetful))
    with pytest.raises(UnavailableError, match="lost rows of chk-2 before it was decided"):
        sink.rehearse([handle], {})
    with pytest.raises(TargetBehindError, match=r"lost rows of chk-2 .* key k"):
        sink.commit(handle)


def test_two_drivers_that_note_at_once_lose_no_witness(bench: Bench) -> None:
    bench.committed(rows(a="1"), epoch=1)
    sink, handle = bench.sink(), bench.staged(rows(b="2"), epoch=2)
    theirs = next(key for key in MANY if bench.node_of(key) is _without_books(bench))
    real = sink.seal

    def late(*given: Any) -> None:  # noqa: ANN401  those of seal
        real(*given)
        bench.sink().commit(bench.staged(rows(**{theirs: "2"}), epoch=2, slot=1))

    sink.seal = late  # type: ignore[method-assign, assignment]
    with pytest.raises(UnavailableError, match="another driver has noted"):
        sink.commit(handle)
    assert bench.sink().commit(handle) == Committed()
    bench.cluster.call(bench.node_of(theirs), "FLUSHALL")
    with pytest.raises(TargetBehindError, match="chk-2"):
        bench.sink().look_back(CONTEXT, 2, [])


def _without_books(bench: Bench) -> EmbeddedRedis:
    return bench.other_than("onceonly:books:q")


# --- what is refused --------------------------------------------------------------------------------------------


def test_what_a_cluster_cannot_have_is_refused(bench: Bench, tmp_path: Path) -> None:
    def said(**options: str) -> str:
        with pytest.raises(ConfigurationError) as raised:
            bench.sink(**options).check(CONTEXT)
        return raised.value.what

    assert "has the database 0 alone" in said(url=f"{bench.cluster.url}/1")
    rights = ["on", ">pw", "~none", "+@read", "+@write", "+@scripting", "+info", "+ping"]
    for node in bench.cluster.nodes:
        bench.cluster.call(node, "ACL", "SETUSER", "reader", *rights)
    with pytest.raises(ConfigurationError, match="does not permit the user reader") as raised:
        bench.sink(user="reader", password="pw").check(CONTEXT)  # noqa: S106  of this server
    for node in bench.cluster.nodes:
        bench.cluster.call(node, *raised.value.next_step.removeprefix("grant it: ").split())
    bench.options |= {"user": "reader", "password": "pw"}
    bench.committed(rows(**MANY))
    assert bench.seen() == MANY


def test_any_node_of_an_address_will_do(bench: Bench) -> None:
    ports = [str(node.port) for node in bench.cluster.nodes]
    bench.options["url"] = f"redis://127.0.0.1:1,127.0.0.1:{ports[2]},127.0.0.1:{ports[0]}"
    bench.committed(rows(**MANY))
    assert bench.seen() == MANY


def test_several_servers_that_are_no_cluster_are_refused(tmp_path: Path) -> None:
    with EmbeddedRedis() as server:
        sink = RedisSink({"url": f"{server.url},127.0.0.1:1", "key": "key", "staging": str(tmp_path)})
        with closing(sink), pytest.raises(ConfigurationError, match="no node of a cluster"):
            sink.check(CONTEXT)
