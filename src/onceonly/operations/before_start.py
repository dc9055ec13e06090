"""``onceonly doctor --for``: what would go wrong with a job that has not been started yet.

It does what a start does before its first record, and no more: the checkpoint's store is tried by a file that is
removed, and the sink's own check makes what a first start makes (a topic of markers, books): where it is agreed to.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.executor.dead_letters import columns_of
from onceonly.guards.source import KAFKA
from onceonly.jars.installed import installed
from onceonly.log.place import FOLDER, log_store
from onceonly.model import Guarantee
from onceonly.operations import before_kafka
from onceonly.operations.disk import FREE_BYTES_MIN
from onceonly.operations.probes import Finding, Health, Sick, asked
from onceonly.ports import QueryContext
from onceonly.settings import registry
from onceonly.settings.query import no_checkpoint
from onceonly.stores.folder import LocalStore
from onceonly.stores.opened import address_of, folder_of
from onceonly.stores.probing import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from onceonly.operations.planned_job import PlannedJob
    from onceonly.settings.query import QuerySettings, Settings, SinkSettings
    from onceonly.settings.registry import SinkClass

_QUERY = "doctor"
"""The query that the sink's check is told of: the real one has its id from Spark, at its start."""
_SPARK_MIN = (3, 5)
_DELTA, _KINESIS = "delta", "kinesis"
_OF_FILES = frozenset({"avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"})
"""Spark's formats of files, of which an empty folder is a source that has nothing yet."""
_CONNECTOR = re.compile(r"spark-sql-kafka-0-10_(?P<scala>[\d.]+)[-:](?P<version>\d+\.\d+\.\d+)")


def examine(job: PlannedJob, *, agreed: bool, only: Collection[str] = (), within_s: float) -> list[Finding]:
    """Probe a job before its first start. On the machine that will run it; never raises for what is wrong."""
    found: list[Finding] = []

    def ask(category: str, name: str, work: Callable[[], None], *, changes: bool = False) -> bool:
        if only and category not in only:
            return True
        finding = (
            asked(category, name, work, within_s) if agreed or not changes else _not_tried(category, name)
        )
        found.append(finding)
        return finding.health is Health.WELL

    ask("versions", "Spark", spark_fits)
    parsed: list[tuple[Settings, SinkClass]] = []
    options = asked("options", "are known", lambda: parsed.append(_parse(job)), within_s)
    if place := job.place_in(options.told):
        options = replace(options, told=f"{options.told.rstrip('.')} ({place})")
    # Also where another category was asked for: the others stand on it.
    if options.health is not Health.WELL or not only or "options" in only:
        found.append(options)
    if options.health is not Health.WELL:
        return found
    [(settings, sink)] = parsed
    assert settings.query is not None  # noqa: S101  _parse has seen to it
    unreadable = False
    for category, name, work, changes in _probes(job, settings, settings.query, sink):
        # What cannot be read is asked nothing more.
        if not (category == "source" and unreadable):
            is_well = ask(category, name, work, changes=changes)
            unreadable = unreadable or (category == "source" and not is_well)
    return found


def _probes(
    job: PlannedJob, settings: Settings, query: QuerySettings, sink: SinkClass
) -> Iterator[tuple[str, str, Callable[[], None], bool]]:
    if job.reads_kafka:
        yield "jars", "connector", lambda: connector_fits(job.spark), False
    yield "store", "is new", lambda: _is_new(query), False
    yield "store", "keeps its laws", lambda: _laws(query.checkpoint), True
    yield "disk", "room", lambda: _room(query.checkpoint), False
    if job.source is not None and job.source.format not in {KAFKA, _KINESIS}:
        yield "source", "can be read", lambda: _readable(job), False
    if job.reads_kafka:
        yield "source", "can be read", lambda: before_kafka.readable(job), False
        yield "source", "keeps its rows", lambda: before_kafka.kept(job), False
        yield "source", "is not the target", lambda: before_kafka.no_loop(job, settings.sink), False
    if job.source is not None and job.source.format == _KINESIS:
        from onceonly.operations import before_kinesis  # a job of other sources has no boto3

        yield "source", "can be read", lambda: before_kinesis.readable(job), False
        yield "source", "keeps its rows", lambda: before_kinesis.kept(job), False
        if sink == registry.BUILT_IN["kinesis"]:
            yield "source", "is not the target", lambda: before_kinesis.no_loop(job, settings.sink), False
    yield "targets", "takes the rows", lambda: _takes(settings.sink, sink, query, job.columns), True
    letters = settings.sink.of_letters
    if letters is not None and settings.sink.letters is not None:
        taker = registry.find(settings.sink.letters.format)[1]
        yield "targets", "takes dead letters", lambda: _takes(letters, taker, query, None), True
    if sink == registry.BUILT_IN["kafka"] and settings.sink.guarantee is not Guarantee.AT_LEAST_ONCE:
        yield "timeouts", "of transactions", lambda: before_kafka.transactions(job, settings), False
        yield "timeouts", "of an outage", lambda: before_kafka.outage(job, settings.sink), False
        yield "timeouts", "of markers", lambda: before_kafka.markers(job, settings.sink), False
    if query.lag_group:
        yield "lag", "has a group", lambda: before_kafka.group(job, query.lag_group), False


def _not_tried(category: str, name: str) -> Finding:
    return Finding(
        category=category, probe=name, health=Health.UNKNOWN,
        told="not tried: it puts a file and removes it, or makes what a first start makes",
        next_step="agree to it, or give --yes",
    )  # fmt: skip


# --- probes -------------------------------------------------------------------------------------------------


def _parse(job: PlannedJob) -> tuple[Settings, SinkClass]:
    name, sink = registry.find(job.format)
    settings = registry.settings_of(job.options, name, sink)
    if settings.query is None:
        raise no_checkpoint()
    address_of(settings.query.checkpoint)
    registry.build(settings.sink, sink, checkpoint=settings.query.checkpoint).close()
    if settings.sink.letters is not None:
        registry.find(settings.sink.letters.format)
    return settings, sink


def spark_fits() -> None:
    """See that there is a PySpark, and that it is not too old. Raises ``SetupError``."""
    spark = installed()
    if tuple(map(int, spark.line.split("."))) < _SPARK_MIN:
        raise Sick(f"PySpark {spark.version} is too old: it cannot tell the jobs of an epoch from others",
                   "use PySpark 3.5 or newer")  # fmt: skip


def connector_fits(settings: Mapping[str, str]) -> None:
    """See that a session with these settings gets the connector of this Spark's Kafka source."""
    spark = installed()
    paths = [each for each in settings.get("spark.jars", "").split(",") if each.strip()]
    packages = settings.get("spark.jars.packages", "")
    missing = [each for each in paths if "://" not in each and not Path(each.removeprefix("file:")).is_file()]
    if missing:
        raise Sick(
            f"spark.jars names {missing[0]}, which is not there",
            "set spark.jars to what `onceonly jars --spark` prints",
        )
    named = [match for each in (*paths, packages) if (match := _CONNECTOR.search(each))]
    if not named:
        raise Sick(
            "the source is Kafka's, and neither spark.jars nor spark.jars.packages names its connector",
            "set spark.jars to what `onceonly jars --spark` prints",
        )
    match = named[0]
    if match["scala"] != spark.scala or match["version"].rpartition(".")[0] != spark.line:
        raise Sick(
            f"the connector is of Spark {match['version']} and Scala {match['scala']}, and Spark is {spark.version} "
            f"with Scala {spark.scala}",
            "set spark.jars to what `onceonly jars --spark` prints",
        )


def _is_new(query: QuerySettings) -> None:
    """See that no query of another sink has left its epochs there, unless they are to be taken over."""
    from onceonly.checkpoint.reading import SparkCheckpoint

    committed = SparkCheckpoint.at(query.checkpoint).committed()
    if committed and log_store(query.checkpoint).get("identity.json") is None and not query.adopt:
        raise Sick(
            f"the checkpoint {query.checkpoint} has epochs up to chk-{max(committed)} and no decision log: another "
            "sink wrote them, or the folder onceonly was taken away",
            "put that folder back, if there was one; else set onceonly.adopt=true to take it over, or name a new "
            "checkpoint",
        )


def _laws(checkpoint: str) -> None:
    """See that the store keeps a name for who was first; a folder is tried beside, as nothing of a query's is there."""
    folder = folder_of(address_of(checkpoint))
    if folder is None:
        probe(log_store(checkpoint), place=checkpoint)
        return
    parent = _standing(folder)
    try:
        beside = tempfile.mkdtemp(prefix=".onceonly-doctor-", dir=parent)
    except OSError as error:
        raise Sick(
            f"{parent} may not be written, and the checkpoint is to be made there: {error.strerror}",
            f"chmod u+w {parent}",
        ) from None
    try:
        LocalStore(Path(beside)).prepare([FOLDER])
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _room(checkpoint: str) -> None:
    folder = folder_of(address_of(checkpoint))
    if folder is not None and (free := shutil.disk_usage(_standing(folder)).free) < FREE_BYTES_MIN:
        raise Sick(
            f"the disk of {folder} has {free >> 20} MiB left", "make room, or name a checkpoint elsewhere"
        )


def _standing(folder: Path) -> Path:
    """Return the folder, or the nearest above it that is there."""
    return next((each for each in (folder, *folder.parents) if each.is_dir()), Path("/"))


def _readable(job: PlannedJob) -> None:
    """See that a folder of files, or a table's, is there. Of stores and other sources nothing is known here."""
    assert job.source is not None  # noqa: S101  _probes has seen to it
    path = job.source.options.get("path", "")
    if not path or "*" in path:
        return
    folder = folder_of(address_of(path))
    if folder is None:
        return
    if job.source.format == _DELTA:
        # An empty folder is no table, so that making one would help nobody.
        if not (folder / "_delta_log").is_dir():
            raise Sick(
                f"the source reads the Delta table {folder}, which is not there"
                if not folder.exists()
                else f"the source reads {folder}, which is no Delta table: there is no _delta_log in it",
                "correct the option path of the source, or have the table made there by who writes it",
            )
    elif not folder.exists():
        is_files = job.source.format in _OF_FILES
        raise Sick(
            f"the source reads {folder}, which is not there",
            f"mkdir -p {shlex.quote(str(folder))}"
            if is_files
            else "correct the option path of the source, or have made what it shall read",
        )


def _takes(
    settings: SinkSettings, sink: SinkClass, query: QuerySettings, columns: tuple[tuple[str, str], ...] | None
) -> None:
    """Have the sink check its target, as a start does: columns, rights, time-outs."""
    made = registry.build(settings, sink, checkpoint=query.checkpoint)
    try:
        made.check(
            QueryContext(
                query=_QUERY,
                sink=settings.name,
                guarantee=settings.guarantee,
                columns=columns_of(made) if columns is None else columns,
            )
        )
    finally:
        made.close()
