"""A checkpoint is looked through just before Spark reads it; what Spark is told stays the same."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql.types import StructType

import onceonly
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import AdoptionError, ConfigurationError, LogError
from onceonly.model import Guarantee
from onceonly.settings.query import START, QuerySettings, SinkSettings
from onceonly.settings.registry import find, remember
from onceonly.spark import format as format_of
from onceonly.spark import starting
from onceonly.spark.asked import PARTITION_BY
from onceonly.spark.configure import PROVIDER, RAW_FILES
from onceonly.spark.foreach_batch import ForeachBatch
from onceonly.spark.format import make_format
from onceonly.spark.noted import noted_before
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from pathlib import Path

KAFKA = {"kafka.bootstrap.servers": "b:1", "topic": "t"}


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """A class like PySpark's, wrapped."""

    class Writer:
        _onceonly_noted: dict[str, str] = {}  # noqa: RUF012  as install puts it

        def __init__(self) -> None:
            self.told: list[tuple[Any, ...]] = []

        def option(self, key: str, value: object) -> Writer:
            self.told.append((key, value))
            return self

        def options(self, **options: object) -> Writer:
            self.told += options.items()
            return self

        def format(self, source: str) -> Writer:
            self.told.append((source,))
            return self

        def foreachBatch(self, func: object) -> Writer:  # noqa: N802  PySpark's
            self.told.append((func,))
            return self

        def queryName(self, queryName: str) -> Writer:  # noqa: N802, N803  PySpark's
            self.told.append((queryName,))
            return self

        def start(self, path: str | None = None, format: str | None = None, **options: object) -> Writer:  # noqa: A002  PySpark's
            self.told.append((path, format, *options.items()))
            return self

    starting._wrap(Writer)
    return Writer


def torn(checkpoint: Path) -> Path:
    checkpoint.mkdir(parents=True)
    metadata = checkpoint / "metadata"
    metadata.touch()
    return metadata


def test_a_query_by_a_format_of_ours_has_its_checkpoint_mended(writer: type[Any], tmp_path: Path) -> None:
    tell: list[Any] = [
        lambda w, where: (
            w.format("onceonly.kafka").options(**KAFKA).option("checkpointLocation", where).start()
        ),
        lambda w, where: w.options(checkpointLocation=where, path="/p").format("onceonly.files").start(),
        lambda w, where: (
            w.format("onceonly.files").option("format", "json").start("/p", checkpointLocation=where)
        ),
        lambda w, where: w.option("CheckpointLocation", where).start(None, "onceonly.console"),
        lambda w, where: w.start(format="onceonly.console", checkpointLocation=f"file:{where}"),
        lambda w, where: (
            w.option("checkpointLocation", where).foreachBatch(onceonly.sink("onceonly.console")).start()
        ),
    ]
    for number, start in enumerate(tell):
        metadata = torn(tmp_path / str(number))
        start(writer(), str(metadata.parent))
        assert not metadata.exists()


def test_a_checkpoint_where_the_session_puts_it_is_mended(writer: type[Any], tmp_path: Path) -> None:
    class Session:
        class conf:  # noqa: N801  Spark's name
            @staticmethod
            def get(_name: str, _default: None) -> str:
                return f"file:{tmp_path}/"

    writer._spark = Session
    tell: list[Any] = [
        lambda w, name: w.format("onceonly.console").queryName(name).start(),
        lambda w, name: w.format("onceonly.console").start(queryName=name),
    ]
    for number, start in enumerate(tell):
        metadata = torn(tmp_path / str(number))
        start(writer(), str(number))
        assert not metadata.exists()
    writer().format("onceonly.console").start()  # without a name: refused later


def test_how_far_spark_had_noted_epochs_is_known_of_each_start(writer: type[Any], tmp_path: Path) -> None:
    assert noted_before(str(tmp_path)) is None
    begin = writer().option("checkpointLocation", f"file:{tmp_path}").foreachBatch(print).start
    begin()
    assert noted_before(str(tmp_path)) == -1
    (tmp_path / "commits").mkdir()
    for epoch in (8, 12):
        (tmp_path / "commits" / str(epoch)).touch()
    assert noted_before(str(tmp_path)) == -1
    begin()
    assert noted_before(str(tmp_path)) == 12


def test_a_query_whose_checkpoint_holds_our_log_is_ours(writer: type[Any], tmp_path: Path) -> None:
    metadata = torn(tmp_path / "mine")
    (tmp_path / "mine" / "onceonly").mkdir()
    writer().option("checkpointLocation", str(tmp_path / "mine")).start()
    assert not metadata.exists()


def test_another_query_is_left_alone(writer: type[Any], tmp_path: Path) -> None:
    metadata = torn(tmp_path / "other")
    writer().format("kafka").option("checkpointLocation", str(tmp_path / "other")).start()
    writer().option("checkpointLocation", str(tmp_path / "other")).foreachBatch(print).start()
    assert metadata.exists()


def test_spark_is_told_what_the_user_said(writer: type[Any]) -> None:
    written = (
        writer()
        .format("onceonly.files")
        .option("checkpointLocation", "s3://bucket/x")
        .start("p", maxRecordsPerFile=1)
    )
    first, second = [each for each in written.told if each[0] == START], written.start("p").told[-2]
    assert [each for each in written.told if each[0] != START][:3] == [
        ("onceonly.files",),
        ("checkpointLocation", "s3://bucket/x"),
        ("p", None, ("maxRecordsPerFile", 1)),
    ]
    assert len({first[0], second}) == 2, "each start has a name of its own"
    assert writer()._onceonly_noted == {}
    assert writer().format("kafka").start().told == [("kafka",), (None, None)]


@pytest.mark.parametrize(
    ("name", "text"),
    [("onceonly.metrics.port", "http"), ("onceonly.metrics.file", "/x"), ("onceonly.traces", "x")],
)
def test_what_is_asked_to_be_told_of_a_query_is_refused_before_spark_starts_it(
    writer: type[Any], tmp_path: Path, name: str, text: str
) -> None:
    given = writer().format("onceonly.console").option("checkpointLocation", str(tmp_path)).option(name, text)
    with pytest.raises(ConfigurationError, match=name):
        given.start()
    assert (None, None) not in given.told


def test_a_function_that_makes_a_sink_and_leaves_it_alone_fails(writer: type[Any]) -> None:
    def write(_df: object, _batch_id: int) -> None:
        onceonly.sink("onceonly.console")

    given = writer().foreachBatch(func=write)
    with pytest.raises(ConfigurationError, match="made the sink 'console'"):
        given.told[0][0](SimpleNamespace(isEmpty=lambda: False), 0)
    sink = onceonly.sink("onceonly.console")
    assert writer().foreachBatch(sink).told == [(sink,)]


@pytest.mark.parametrize(
    ("form", "options", "said"),
    [
        ("kafka", {"kafka.bootstrap.servers": "b:1", "topics": "t"}, "did you mean topic?"),
        ("postgres", {"url": "postgresql://b:1/shop"}, "option table of the sink postgres is missing"),
        ("kafka", {**KAFKA, "onceonly.guarante": "x"}, "did you mean onceonly.guarantee?"),
        ("kafka", {**KAFKA, "onceonly.visible": "early"}, "cannot show rows early"),
        ("console", {PARTITION_BY: "`day`"}, "no partition columns"),
    ],
)
def test_a_wrong_option_of_a_format_comes_out_of_start(
    writer: type[Any], tmp_path: Path, form: str, options: dict[str, str], said: str
) -> None:
    given = writer().format(f"onceonly.{form}").options(checkpointLocation=str(tmp_path), **options)
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        given.start()
    assert (None, None) not in given.told


def test_a_sink_of_the_users_is_asked_for_its_options_where_it_is_planned_alone(
    writer: type[Any], tmp_path: Path
) -> None:
    writer().format("onceonly.mine").options(checkpointLocation=str(tmp_path), any="x").start()


def noted(checkpoint: Path, epochs: int) -> None:
    """Leave what Spark leaves of so many epochs, whoever has written them; the last one is not noted as complete."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
    for epoch in range(epochs):
        (checkpoint / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{epoch}}}}}')
        if epoch < epochs - 1:
            (checkpoint / "commits" / str(epoch)).write_text("v1\n{}")


START_BY: dict[str, Any] = {
    "format": lambda w, **more: w.format("onceonly.kafka").options(**KAFKA, **more).start(),
    "a sink of the user's": lambda w, **more: w.format("onceonly.mine").options(**more).start(),
    "function": lambda w, **more: (
        w.options(checkpointLocation=more["checkpointLocation"])
        .foreachBatch(onceonly.sink("onceonly.console", **more))
        .start()
    ),
}


@pytest.mark.parametrize("by", START_BY)
def test_the_epochs_of_another_sink_are_refused_at_the_start_though_nothing_new_has_come(
    writer: type[Any], tmp_path: Path, by: str
) -> None:
    given = {"checkpointLocation": str(tmp_path)}
    noted(tmp_path, 1)
    START_BY[by](writer(), **given)  # an epoch that is in flight may be anybody's
    noted(tmp_path, 2)
    with pytest.raises(AdoptionError, match="no decision log, but 1 epoch up to chk-0") as caught:
        START_BY[by](writer(), **given)
    assert "onceonly.adopt=true" in caught.value.next_step
    assert "its log, the folder onceonly, was taken away" in caught.value.what, (
        "nobody knows that it never had one"
    )
    assert caught.value.next_step.startswith("if it had a log, put the folder onceonly back")
    assert not (tmp_path / "onceonly").exists(), "it only looks"
    with pytest.raises(AdoptionError):
        START_BY[by](writer(), **given, **{"onceonly.adopt": "false"})
    START_BY[by](writer(), **given, **{"onceonly.adopt": "true"})


@pytest.mark.parametrize("by", START_BY)
def test_lists_of_files_that_are_behind_the_offsets_are_refused_before_spark_makes_others(
    writer: type[Any], tmp_path: Path, by: str
) -> None:
    noted(tmp_path, 3)
    (tmp_path / "onceonly").mkdir()
    given = {"checkpointLocation": str(tmp_path), "onceonly.adopt": "true"}
    for epoch, number in enumerate((7, 9, 10)):
        (tmp_path / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n-\n{{"logOffset":{number}}}')
    lists = tmp_path / "sources" / "1"
    lists.mkdir(parents=True)
    for name in ("8", "9.compact"):
        (lists / name).write_text('v1\n{"path":"file:///in/a","timestamp":1732650000000,"batchId":8}')
    (tmp_path / "offsets" / "2").unlink()
    START_BY[by](writer(), **given)  # the newest is in the compacted one
    (lists / "9.compact").unlink()
    with pytest.raises(LogError, match="has no list of files 9, up to which offsets/1 reads") as caught:
        START_BY[by](writer(), **given)
    assert "put the folder sources back" in caught.value.next_step
    # One that has more lists is another source's.
    lists.rename(lists.with_name("0"))
    (lists.with_name("0") / "10").write_text(
        'v1\n{"path":"file:///in/a","timestamp":1732650000000,"batchId":10}'
    )
    with pytest.raises(LogError):
        START_BY[by](writer(), **given)
    lists.with_name("0").rename(lists.with_name("orders"))
    START_BY[by](writer(), **given)  # the source has a name
    shutil.rmtree(tmp_path / "sources")
    with pytest.raises(LogError):
        START_BY[by](writer(), **given)


@pytest.mark.parametrize("epochs", [1, 2])
def test_lists_of_a_source_that_is_read_twice_are_not_taken_for_those_of_another(
    writer: type[Any], tmp_path: Path, epochs: int
) -> None:
    noted(tmp_path, epochs)
    for epoch in range(epochs):
        ends = "\n".join(f'{{"logOffset":{number}}}' for number in (7, 7, 3))
        (tmp_path / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{ends}")
    for source, number in (("0", 7), ("1", 3)):
        lists = tmp_path / "sources" / source
        lists.mkdir(parents=True)
        (lists / f"{number}").write_text('v1\n{"path":"file:///in/a","timestamp":1732650000000,"batchId":3}')
    if epochs > 1:
        (tmp_path / "commits" / "1").write_text("v1\n{}")
    given = {"checkpointLocation": str(tmp_path), "onceonly.adopt": "true"}
    START_BY["format"](writer(), **given)
    assert (tmp_path / "offsets" / str(epochs - 1)).exists()


def test_a_start_is_refused_by_the_words_of_the_plan_that_would_refuse_it(
    writer: type[Any], tmp_path: Path
) -> None:
    MemorySink.stores.clear()
    remember(MemorySink)
    noted(tmp_path, 1)

    def coordinator() -> QueryCoordinator:
        made = QueryCoordinator(QuerySettings(checkpoint=str(tmp_path)), actor="driver", application="app")
        made.enlist(SinkSettings(name="memory"), MemorySink, ())
        return made

    def start() -> None:
        writer().format("onceonly.mine").option("checkpointLocation", str(tmp_path)).start()

    ours = coordinator()
    ours.decide(ours.plan(0, run="r"), [])
    start()  # decided and not noted
    noted(tmp_path, 2)
    start()
    (tmp_path / "commits" / "1").write_text("v1\n{}")  # another sink has written it
    with pytest.raises(AdoptionError, match="chk-1: another sink wrote it") as early:
        start()
    noted(tmp_path, 3)
    with pytest.raises(AdoptionError) as late:
        coordinator().plan(2, run="s")
    assert str(early.value) == str(late.value)


def test_a_start_whose_epochs_had_nothing_new_is_not_refused(writer: type[Any], tmp_path: Path) -> None:
    MemorySink.stores.clear()
    remember(MemorySink)
    noted(tmp_path, 1)
    ours = QueryCoordinator(QuerySettings(checkpoint=str(tmp_path)), actor="driver", application="app")
    ours.enlist(SinkSettings(name="memory"), MemorySink, ())
    ours.decide(ours.plan(0, run="r"), [])
    noted(tmp_path, 3)
    for epoch in (1, 2):
        shutil.copy(tmp_path / "offsets" / "0", tmp_path / "offsets" / str(epoch))
    writer().format("onceonly.mine").option("checkpointLocation", str(tmp_path)).start()


@pytest.mark.parametrize(("name", "text"), [("onceonly.metrics.port", "0"), ("onceonly.report", "/r.html")])
def test_where_nobody_of_ours_started_a_query_nothing_can_be_told_of_it(
    tmp_path: Path, name: str, text: str
) -> None:
    options = {"checkpointLocation": str(tmp_path), name: text, START: ".of-connect"}
    made = make_format("console", find("console")[1], "app")(options)
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        made.streamWriter(StructType(), overwrite=False)


def test_a_format_decides_where_the_session_puts_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_of, "plan_epoch", lambda stream, _columns: stream.query.checkpoint)
    formats = make_format("console", find("console")[1], "app", checkpoints="/checkpoints")
    made = formats({"queryname": "orders", START: ".of-connect"})
    assert cast("object", made.streamWriter(StructType(), overwrite=False)) == "/checkpoints/orders"


@pytest.fixture
def without_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in PySpark 3.5."""
    monkeypatch.setattr(starting, "has_formats", lambda: False)


@pytest.mark.usefixtures("without_formats")
def test_without_formats_the_word_is_written_by_foreach_batch_with_all_its_options(
    writer: type[Any], tmp_path: Path
) -> None:
    where = str(tmp_path / "checkpoint")
    given = (
        writer().option("topic", "t").options(**{"kafka.bootstrap.servers": "b:1", "includeHeaders": True})
    )
    given.format("onceonly.kafka").start(
        None, queryName="q", checkpointLocation=where, **{"onceonly.guarantee": "at-least-once"}
    )
    (function,) = (each[0] for each in given.told if isinstance(each[0], ForeachBatch))
    assert function.settings.name == "kafka"
    assert function.settings.guarantee is Guarantee.AT_LEAST_ONCE
    assert function.settings.options == {
        "topic": "t", "kafka.bootstrap.servers": "b:1", "includeheaders": "true"
    }  # fmt: skip
    assert function._query == QuerySettings(checkpoint=where)
    assert given.told[-1] == (None, None, ("checkpointLocation", where), ("queryName", "q"))
    assert START not in [each[0] for each in given.told]


@pytest.mark.usefixtures("without_formats")
def test_without_formats_a_path_and_partitions_are_the_sinks(writer: type[Any], tmp_path: Path) -> None:
    given = writer().format("onceonly.files").option("format", "json").option("checkpointLocation", "/c")
    given.start("/out", **{PARTITION_BY: "`day`"})
    (function,) = (each[0] for each in given.told if isinstance(each[0], ForeachBatch))
    assert function.settings.options == {"path": "/out", "format": "json", "partitionby": "`day`"}
    assert given.told[-1] == (None, None, ("checkpointLocation", "/c"))


@pytest.mark.usefixtures("without_formats")
def test_without_formats_queries_of_others_are_left_alone(writer: type[Any]) -> None:
    assert writer().format("kafka").start("p").told == [("kafka",), ("p", None)]
    given = writer().format("onceonly.kafka").foreachBatch(print).start()
    form, (function,), start = given.told
    assert (form, inspect.unwrap(function), start) == (("onceonly.kafka",), print, (None, None))


def test_it_is_put_into_pyspark_once() -> None:
    starting.install()
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    start = DataStreamWriter.start
    starting.install()
    assert DataStreamWriter.start is start
    assert start.__wrapped__.__name__ == "start"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("location", "provider", "advice"),
    [
        ("s3a://bucket/cp", "", "local_checkpoints=False"),
        ("/cp", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider", "rocksdb=True"),
        ("/cp", "", ""),
        ("hdfs://name:9000/cp", "", ""),
    ],
)
def test_what_fails_by_raw_files_is_told_before_spark_fails_by_a_cast(
    writer: type[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    location: str,
    provider: str,
    advice: str,
) -> None:
    raw = {RAW_FILES[0]: RAW_FILES[1]}
    conf = SimpleNamespace(get=lambda name, default=None: raw.get(name, default))
    session = SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: conf),
        conf=SimpleNamespace(get=lambda name, default=None: provider if name == PROVIDER else default),
    )
    monkeypatch.setattr(starting, "_look", lambda _noted, _location: True)
    writer._spark = session
    writer().format("onceonly.console").option("checkpointLocation", location).start()
    told = [
        record.getMessage() for record in caplog.records if "fails in this session" in record.getMessage()
    ]
    assert [advice in each for each in told] == ([True] if advice else [])


@pytest.mark.parametrize(
    ("location", "is_told"),
    [
        ("checkpoints/clicks", True),
        ("./c", True),
        ("/c", False),
        ("file:/c", False),
        ("s3a://b/c", False),
    ],
)
def test_a_checkpoint_that_another_working_directory_would_not_find_is_told(
    writer: type[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    location: str,
    is_told: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    monkeypatch.setattr(starting, "_look", lambda _noted, _location: True)
    writer().format("onceonly.console").option("checkpointLocation", location).start()
    assert ["named by a relative path" in record.getMessage() for record in caplog.records].count(
        True
    ) == is_told
