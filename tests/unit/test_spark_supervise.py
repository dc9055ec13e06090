"""The supervisor's loop, with queries and a clock that do what the test says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from onceonly.errors import (
    CommitDelayedError,
    ConfigurationError,
    InDoubtError,
    LogError,
    StoppedError,
    SupersededError,
    UnavailableError,
)
from onceonly.log import open_log
from onceonly.log.stops import Stop
from onceonly.model import Link, LinkKind, Receipt, Stamp
from onceonly.settings.restart import FixedDelay, NoRestart
from onceonly.sources.known import SOURCES
from onceonly.spark import asked
from onceonly.spark import supervise as supervising
from onceonly.spark.gone import in_session
from onceonly.spark.supervise import explain, supervise

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.settings.restart import RestartStrategy


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeQuery:
    """Runs for some looks, then ends with or without an exception."""

    def __init__(self, looks: int = 1, failure: BaseException | None = None) -> None:
        self._looks = looks
        self._failure = failure
        self.stopped = False

    @property
    def isActive(self) -> bool:  # noqa: N802  Spark's name
        self._looks -= 1
        return self._looks >= 0 and not self.stopped

    def exception(self) -> BaseException | None:
        return None if self.stopped else self._failure

    def stop(self) -> None:
        self.stopped = True


class Builder:
    def __init__(self, *queries: object) -> None:
        self.queries = list(queries)
        self.built: list[float] = []
        self.clock = FakeClock()

    def __call__(self) -> Any:  # noqa: ANN401  stands for StreamingQuery
        self.built.append(self.clock.now)
        query = self.queries[len(self.built) - 1]
        if isinstance(query, BaseException):
            raise query
        return query


def run(*builders: Builder, restart: RestartStrategy | None = None) -> None:
    clock = FakeClock()
    for builder in builders:
        builder.clock = clock
    supervise(*builders, restart=restart, clock=clock)


def spark_error(inner: BaseException) -> RuntimeError:
    """What a typed error looks like when it has come through Spark."""
    trace = f"Traceback (most recent call last):\n  File x\nonceonly.errors.X: {inner}\n\tat java.base"
    return RuntimeError(f"[STREAM_FAILED] Query terminated: Job aborted.\n{trace}")


DELAYED = spark_error(CommitDelayedError("chk-3 waits", next_step="restart"))
OLDER = spark_error(LogError("has committed epoch 4: an older checkpoint, or a newer run", next_step="see"))
DOUBT = spark_error(InDoubtError("transaction t-1 of chk-3", next_step="ask the broker"))


def test_a_query_that_ends_by_itself_ends_supervision() -> None:
    builder = Builder(FakeQuery(looks=3))
    run(builder)
    assert len(builder.built) == 1


def test_a_failure_that_can_heal_is_answered_by_the_strategy() -> None:
    builder = Builder(FakeQuery(failure=DELAYED), FakeQuery(failure=RuntimeError("lost socket")), FakeQuery())
    run(builder, restart=FixedDelay(attempts=2, delay_s=10))
    assert len(builder.built) == 3
    assert builder.built[1] >= 10
    assert builder.built[2] - builder.built[1] >= 10


def test_the_last_failure_is_raised_when_the_strategy_gives_up() -> None:
    with pytest.raises(RuntimeError, match="lost socket"):
        run(Builder(FakeQuery(failure=RuntimeError("lost socket"))), restart=NoRestart())
    with pytest.raises(CommitDelayedError) as caught:
        run(Builder(FakeQuery(failure=DELAYED)), restart=NoRestart())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_what_no_restart_can_heal_is_raised_as_its_typed_error() -> None:
    other = FakeQuery(looks=1000)
    builder = Builder(FakeQuery(failure=DOUBT), FakeQuery())
    with pytest.raises(InDoubtError) as caught:
        run(builder, Builder(other), restart=FixedDelay(attempts=9, delay_s=0))
    assert len(builder.built) == 1
    assert caught.value.what == "transaction t-1 of chk-3"
    assert "java" not in str(caught.value)
    assert other.stopped


def test_one_fails_and_restarts_while_the_other_goes_on() -> None:
    failing = Builder(FakeQuery(failure=DELAYED), FakeQuery())
    steady = FakeQuery(looks=100)
    going = Builder(steady)
    run(failing, going, restart=FixedDelay(attempts=1, delay_s=1))
    assert (len(failing.built), len(going.built)) == (2, 1)
    assert not steady.stopped


def test_a_group_stops_and_restarts_together() -> None:
    steady = FakeQuery(looks=1000)
    builder = Builder([FakeQuery(looks=2, failure=DELAYED), steady], [FakeQuery(), FakeQuery()])
    run(builder, restart=FixedDelay(attempts=1, delay_s=1))
    assert steady.stopped
    assert len(builder.built) == 2


def test_a_first_build_that_raises_is_the_callers_to_see() -> None:
    other = FakeQuery(looks=1000)
    with pytest.raises(ConfigurationError):
        run(Builder(other), Builder(ConfigurationError("x", next_step="y")), restart=FixedDelay(attempts=9))
    assert other.stopped


def test_a_later_build_that_raises_is_a_failure_like_any_other() -> None:
    builder = Builder(FakeQuery(failure=DELAYED), RuntimeError("no source"), FakeQuery())
    run(builder, restart=FixedDelay(attempts=2, delay_s=1))
    assert len(builder.built) == 3


class QueryOfALog(FakeQuery):
    """Has failed over a checkpoint."""

    id = "q"

    def __init__(self, checkpoint: Path, failure: BaseException) -> None:
        super().__init__(failure=failure)
        self._checkpoint = checkpoint

    @property
    def _jsq(self) -> QueryOfALog:
        return self

    def streamingQuery(self) -> QueryOfALog:  # noqa: N802  Spark's name
        return self

    def resolvedCheckpointRoot(self) -> str:  # noqa: N802  Spark's name
        return str(self._checkpoint)


@pytest.mark.parametrize("failure", [DELAYED, OLDER])
@pytest.mark.parametrize(
    ("applications", "is_over"),
    [(("mine", "other"), True), (("other", "mine"), False), (("other",), False), (("mine",), False)],
)
def test_whose_query_another_application_works_on_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    applications: tuple[str, ...],
    failure: BaseException,
    *,
    is_over: bool,
) -> None:
    monkeypatch.setattr(supervising, "application", lambda _session: "mine")
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", object)
    log = open_log(str(tmp_path), query="q", create=True)
    for epoch, application in enumerate(applications):
        log.put_link(Link(epoch=epoch, index=0, kind=LinkKind.COMMIT, plan=f"{application}.1", run="r"))
        log.put_receipt(Receipt(epoch=epoch, index=0, plan="p", outcomes={}, seconds=0.0))
    builder = Builder(QueryOfALog(tmp_path, failure if is_over else DELAYED), FakeQuery())
    if not is_over:
        run(builder, restart=FixedDelay(attempts=1, delay_s=1))
        assert len(builder.built) == 2
        return
    with pytest.raises(SupersededError, match="other"):
        run(builder, restart=FixedDelay(attempts=9, delay_s=0))
    assert len(builder.built) == 1


def test_explain_leaves_out_the_stack_trace() -> None:
    assert explain(DOUBT) == "IN_DOUBT: transaction t-1 of chk-3\nNext: ask the broker"
    assert explain(RuntimeError("first\nsecond")) == "first"
    assert explain(RuntimeError()) == "RuntimeError"


def test_explain_says_what_python_code_of_the_users_raised() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "job.py", line 9, in of\n    raise x\n{}\n\n SQLSTATE: 1'
    )
    said = "[STREAM_FAILED] Query [id = 7] failed: An exception was thrown from the Python worker: "
    assert explain(RuntimeError(said + trace.format("ValueError: 13"))) == f"{said}ValueError: 13"
    nested = trace.format(
        "KeyError: 2\n\nDuring handling of the above exception, another exception occurred:\n"
    )
    assert explain(RuntimeError(said + nested + trace.format("ValueError: 13"))) == f"{said}ValueError: 13"


def died(word: str) -> RuntimeError:
    """What Spark says where the Python process of a source has died."""
    return RuntimeError(
        f"[STREAM_FAILED] Query [id = 0a86, runId = 7fd1] terminated with exception: {word} SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nIdentifier: [id = 0a86]"
    )


@pytest.mark.parametrize("word", ["EOF", "Broken pipe", "Connection reset"])
def test_a_python_source_that_died_is_named_and_started_again(
    word: str, caplog: pytest.LogCaptureFixture
) -> None:
    builder = Builder(FakeQuery(failure=died(word)), FakeQuery())
    run(builder, restart=FixedDelay(attempts=1, delay_s=1))
    assert len(builder.built) == 2
    assert f"the Python process of a source has died: Spark says {word}" in caplog.text
    assert explain(died(word)).startswith("UNAVAILABLE: the Python process of a source has died")
    with pytest.raises(UnavailableError, match="has died"):
        run(Builder(FakeQuery(failure=died(word))), restart=NoRestart())


def test_a_python_process_that_has_not_come_up_is_named_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = died("Python worker failed to connect back.")
    run(Builder(FakeQuery(failure=error), FakeQuery()), restart=FixedDelay(attempts=1, delay_s=1))
    assert "has not come up in the time" in caplog.text
    assert "PYSPARK_PYTHON" in explain(error)
    assert explain(f"{ConfigurationError('wrong', next_step='mend')}\n{error}").startswith("CONFIGURATION")


def test_a_word_of_a_source_that_died_inside_another_message_is_not_taken_for_one() -> None:
    for text in ("Connection reset by peer: shuffle", "unexpected EOF", "x: EOF"):
        assert "Python process" not in explain(died(text))
    error = died("EOF")
    assert explain(f"{ConfigurationError('wrong', next_step='mend')}\n{error}").startswith("CONFIGURATION")


def test_explain_names_the_nearest_format_where_spark_has_found_none() -> None:
    said = (
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}. Make sure the provider name is correct."
    )
    assert "did you mean 'onceonly.kafka'?" in explain(RuntimeError(said.format("onceonly.kafak")))
    assert "there is no format named 'onceonly.kafak'" in explain(RuntimeError(said.format("onceonly.kafak")))
    assert "onceonly.register(spark)" in explain(RuntimeError(said.format("onceonly.kafka")))
    assert explain(RuntimeError(said.format("kafak"))) == said.format("kafak")


@pytest.mark.parametrize("name", [f"onceonly.{name}" for name in SOURCES])
def test_explain_knows_sources_by_name_where_spark_has_found_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}. Make sure the provider name is correct."
    )
    assert explain(said.format(name)).startswith(f"CONFIGURATION: the format {name} is not registered")
    assert f"did you mean '{name}'?" in explain(said.format(name[:-2] + name[-1]))
    monkeypatch.setattr(asked, "has_read_limits", lambda: False)
    told = explain(said.format(name))
    is_read_only = name not in {"onceonly.kinesis", "onceonly.socket"}
    assert ("use PySpark 4.2 or newer" in told) == is_read_only, "these two are sinks, too, of older PySparks"


@pytest.mark.parametrize("when", ["at the failure", "between two starts"])
def test_a_query_that_fails_after_it_was_asked_to_end_is_not_started_again(
    when: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Stop(run="one", began=Stamp(), who="ann", stamp=Stamp(at="now", host="here")).sentence
    looks = iter([""] if when == "between two starts" else [])
    monkeypatch.setattr(supervising, "asked_to_end", lambda _query: next(looks, asked))
    builder = Builder(FakeQuery(failure=DELAYED), FakeQuery())
    run(builder, restart=FixedDelay(attempts=2, delay_s=10))
    assert len(builder.built) == 1
    assert "Not started again: run one was asked to end at now by ann on here." in caplog.text


def test_what_no_start_heals_is_raised_though_it_was_asked_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Stop(run="one", began=Stamp(), who="ann", stamp=Stamp()).sentence
    monkeypatch.setattr(supervising, "asked_to_end", lambda _query: asked)
    with pytest.raises(InDoubtError):
        run(Builder(FakeQuery(failure=DOUBT)))


def test_a_query_that_its_planner_has_ended_as_it_was_asked_to_has_not_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopped = StoppedError(
        "the run one was asked to end, and has ended before chk-5 was begun", next_step="start it"
    )
    builder = Builder(FakeQuery(failure=died(str(stopped))), FakeQuery())
    run(builder, restart=FixedDelay(attempts=2, delay_s=10))
    assert len(builder.built) == 1
    assert "Not started again: the run one was asked to end" in caplog.text


SERVER = """<_InactiveRpcError of RPC that terminated with:
	status = StatusCode.UNAVAILABLE
	details = "failed to connect to all addresses; last error: ipv4:127.0.0.1:15002: Connection refused"
	debug_error_string = "UNAVAILABLE: and so on"
>"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("'NoneType' object has no attribute 'sc'", "was stopped"),
        ("[NO_ACTIVE_SESSION] No active Spark session found. Please create one.", "was stopped"),
        ("Job 7 cancelled because SparkContext was shut down", "was stopped"),
        (
            "(x.INVALID_HANDLE.SESSION_NOT_FOUND) The handle is invalid.",
            "does not know this program's session",
        ),
        (
            "An error occurred while calling o63.awaitTermination",
            "the JVM of this Spark session does not answer",
        ),
        ("Answer from Java side is empty", "the JVM of this Spark session does not answer"),
        (SERVER, r"Connect server does not answer \(failed to connect to all .* Connection refused\)"),
    ],
)
def test_spark_itself_that_is_gone_is_named_with_what_to_do(text: str, told: str) -> None:
    words = explain(RuntimeError(text))
    assert re.search(f"^UNAVAILABLE: .*{told}.*\nNext: ", words), words
    assert len(words.splitlines()) == 2

    @in_session
    def fail() -> None:
        raise RuntimeError(text)

    with pytest.raises(UnavailableError, match=told):
        fail()


def test_a_connection_that_somebody_else_is_refused_is_not_taken_for_the_jvms() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    assert explain(refused) == "[Errno 111] Connection refused"
    assert explain(
        RuntimeError("An error occurred while calling o1.load.\n: java.io.IOException: x")
    ).startswith("An")


def test_a_session_that_was_stopped_ends_supervision_unless_a_builder_makes_a_new_one() -> None:
    stopped = RuntimeError("Cannot call methods on a stopped SparkContext")
    build = Builder(FakeQuery(failure=stopped), FakeQuery(looks=2))
    supervise(build, restart=FixedDelay(attempts=9, delay_s=1), clock=FakeClock())
    assert len(build.built) == 2
    build = Builder(FakeQuery(failure=stopped), stopped, FakeQuery())
    with pytest.raises(UnavailableError, match="was stopped"):
        supervise(build, restart=FixedDelay(attempts=9, delay_s=1), clock=FakeClock())
    assert len(build.built) == 2


def test_a_jvm_that_has_died_ends_supervision_with_a_sentence() -> None:
    class Dead(FakeQuery):
        @property
        def isActive(self) -> bool:  # noqa: N802  Spark's name
            raise RuntimeError("An error occurred while calling o63.isActive")

    with pytest.raises(UnavailableError, match="JVM of this Spark session"):
        supervise(Builder(Dead()), restart=FixedDelay(attempts=9, delay_s=1), clock=FakeClock())
