"""The figures in README and docs are those of the recorded report, and nobody types them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from onceonly_proof.campaign import marks, matrix, result
from onceonly_proof.campaign.records import FOLDER, Record, read_all, records
from onceonly_proof.campaign.result import Result, Round
from onceonly_proof.campaign.tables import faults_table, table

BEGIN, END = f"<!-- {matrix.MARKS}: begin -->", f"<!-- {matrix.MARKS}: end -->"
ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "docs" / "proof" / "result.json"


def one(number: int = 1, *, fired: int = 1_200, lost: int = 0, guarantee: str = "exactly-once") -> Round:
    return Round(
        seed=7,
        number=number,
        connector="kafka",
        guarantee=guarantee,
        started=f"2026-11-{20 + number}T19:20:00Z",
        seconds=41.2,
        rows=4_000,
        epochs=33,
        crashes=1_200,
        armed={"kill link.after_put": 1_200},
        faults={"kill link.after_put": fired},
        anomalies={"lost": lost},
        allowed={} if guarantee == "exactly-once" else {"duplicated": 5},
        examples=("id 12 is [lost]",) if lost else (),
        recovery_s=(2.0, 4.0),
    )


def fold(*rounds: Round) -> Result:
    return result.fold(rounds, seed=7, machine={"cores": 2}, versions={"onceonly": "0.1.0", "kafka": "4.1.0"})


def blocks(report: Result | None, records: tuple[Record, ...] = ()) -> tuple[str, str]:
    """Return what both pages show."""
    shown = matrix.lines(report, records)
    return matrix.short(shown), matrix.whole(report, shown)


# ------------------------------------------------------------------------------------------- pages
@pytest.mark.parametrize("page", [matrix.SHORT, matrix.WHOLE])
def test_the_page_shows_the_recorded_reports(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    report = matrix.recorded(RECORDED)
    shown = matrix.lines(report, read_all(ROOT / FOLDER))
    block = matrix.short(shown) if page == matrix.SHORT else matrix.whole(report, shown)
    assert marks.placed(text, block, name=matrix.MARKS, where=str(page)) == text, "run `make proof-pages`"


def test_both_pages_name_the_code_that_ran_and_say_that_later_code_did_not() -> None:
    early = msgspec.structs.replace(one(0), connector="redis", visible="early", commit="0123456789ab")
    main = msgspec.structs.replace(one(), commit="abcdef012345")
    in_short, whole = blocks(fold(main), records(fold(early)))
    recorded = "Recorded on `abcdef0` and others, from 2026-11-20 on. Code that came later was not measured."
    assert in_short.endswith(recorded)
    assert "| clean | `0123456` |" in whole
    assert "fired. Code that came later was not measured.\n" in whole


def test_the_matrix_is_a_table_with_a_line_for_each_promise() -> None:
    in_short, whole = blocks(fold(one(), one(2), one(3, guarantee="at-least-once")))
    assert "| kafka | exactly-once | 2,400 | 2,400 | 8,000 | 0 | clean | ? |" in whole
    assert (
        "| kafka | at-least-once | 1,200 | 1,200 | 4,000 | 0 (allowed: duplicated 5) | clean | ? |" in whole
    )
    assert (
        "The main run, of kafka: 3,600 crashes in 3 rounds, 2026-11-21 to 2026-11-23, seed 7: **clean**."
        in whole
    )
    assert "| exactly-once | kafka 2,400 | 0 |" in in_short
    assert "\n3,600 crashes; 3,600 of 3,600 faults fired. Recorded on `?`." in in_short


def test_records_of_other_sinks_stand_beside_the_main_report() -> None:
    early = msgspec.structs.replace(one(), connector="redis", visible="early", commit="abcdef012345")
    decided = msgspec.structs.replace(one(), connector="redis", faults={}, armed={"stop broker": 1})
    beside = (*records(fold(early)), *records(fold(decided)), *records(fold(one(2))))
    in_short, whole = blocks(fold(one()), beside)
    assert (
        "| redis | exactly-once by key, seen early | 1,200 | 1,200 | 4,000 | 0 | clean | `abcdef0` |" in whole
    )
    assert "| redis | exactly-once | 1,200 | 0 of 1 | 4,000 | 0 | inconclusive | ? |" in whole
    assert "| exactly-once | kafka 1,200 | 0 |\n" in in_short
    assert "| exactly-once | redis 1,200 | 0 (inconclusive) |\n" in in_short
    assert "| exactly-once by key, seen early | redis 1,200 | 0 |\n" in in_short
    assert whole.count("| kafka |") == 1  # the main report is the word on its own sinks


def test_another_store_or_broker_has_a_line_of_its_own_and_is_not_in_short() -> None:
    elsewhere = [
        msgspec.structs.replace(one(2), store="s3"),
        msgspec.structs.replace(one(3), broker="3.9+tls"),
    ]
    in_short, whole = blocks(fold(one()), records(fold(*elsewhere)))
    for written in ("kafka", "kafka on s3", "kafka, broker 3.9+tls"):
        assert f"| {written} | exactly-once | 1,200 |" in whole
    assert "| exactly-once | kafka 1,200 | 0 |" in in_short
    assert in_short == blocks(fold(one()))[0]


def test_each_pair_of_source_and_sink_has_the_crashes_of_all_campaigns_in_which_it_was() -> None:
    def of(connector: str, **given: object) -> Round:
        return msgspec.structs.replace(one(), connector=connector, crashes=7, **given)

    rounds = (
        of("files+redis", source="http"),
        of("redis", source="http", guarantee="at-least-once"),
        of("files", source="http", store="s3"),
        of("files", source="socket", anomalies={"lost": 1}),
    )
    _, whole = blocks(
        fold(one(fired=1_200)), tuple(each for found in rounds for each in records(fold(found)))
    )
    table = whole[whole.index("| from \\ to |") :].partition("\n\n")[0].splitlines()
    assert table == [
        "| from \\ to | files | files on s3 | kafka | redis |",
        "|---|--:|--:|--:|--:|",
        "| kafka |  |  | 1,200 |  |",
        "| http | 7 | 7 |  | 14 |",
        "| socket | 7 (anomalies) |  |  |  |",
    ]
    assert "from \\ to" not in blocks(fold(one()))[1]


def test_every_commit_that_was_run_is_named_by_its_first_round() -> None:
    rounds = [
        msgspec.structs.replace(one(number), commit=commit)
        for number, commit in [(3, "bbb"), (1, "bbb"), (2, "aaa"), (4, "")]
    ]
    report = result.fold(rounds, seed=7, machine={}, versions={"commit": "ccc", "onceonly": "0.1.0"})
    assert "Run with onceonly 0.1.0, commits bbb, aaa.\n" in blocks(report)[1]
    assert "| `bbb`, `aaa` |" in blocks(report)[1]
    single = result.fold(rounds[:2], seed=7, machine={}, versions={"commit": "ccc", "onceonly": "0.1.0"})
    assert "Run with commit bbb, onceonly 0.1.0.\n" in blocks(single)[1]


def test_the_docs_page_has_every_fault_and_the_recovery() -> None:
    shown = blocks(fold(one()))[1]
    assert "Run with onceonly 0.1.0, kafka 4.1.0.\n" in shown
    assert "| at | kill |\n|---|--:|\n| link.after_put | 1,200 |" in shown
    assert "row: median 3.0 s, worst 4.0 s of 2." in shown


def test_faults_are_a_table_of_points_and_of_what_was_done_there() -> None:
    armed = {
        "kill link.after_put": 3,
        "kill driver at link.after_put": 2,
        "pause sweep.before": 1,
        "stop broker": 4,
    }
    faults = {**armed, "pause sweep.before": 0}
    shown = blocks(fold(msgspec.structs.replace(one(), armed=armed, faults=faults)))[1]
    assert "| at | kill | kill driver | pause |" in shown
    assert "| link.after_put | 3 | 2 |  |" in shown
    assert "| sweep.before |  |  | 0 of 1 |" in shown
    assert "Without a point: stop broker 4." in shown


def test_a_bad_report_is_shown_as_it_is() -> None:
    in_short, whole = blocks(fold(one(lost=3), one(2, fired=1)))
    assert "| exactly-once | kafka 2,400 | lost 3 (anomalies) |" in in_short
    assert "| lost 3 | anomalies |" in whole
    assert "**anomalies**" in whole
    assert "- 3 lost" in whole
    assert "- round 2 of seed 7 (kafka): kill link.after_put was armed 1200 times, fired 1" in whole


@pytest.mark.parametrize("report", [None, fold()])
def test_without_a_run_there_is_no_figure(report: Result | None) -> None:
    for shown in blocks(report):
        assert shown == "No run has been recorded yet."


def test_the_pages_are_written_by_the_command(tmp_path: Path) -> None:
    (tmp_path / matrix.WHOLE).parent.mkdir(parents=True)
    for page in (matrix.SHORT, matrix.WHOLE):
        (tmp_path / page).write_text(f"before\n{BEGIN}old{END}\nafter\n", encoding="utf-8")
    result.write(tmp_path / "result.json", fold(one()))
    command = [sys.executable, "-m", "onceonly_proof.campaign.matrix", "result.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for page, shown in zip((matrix.SHORT, matrix.WHOLE), blocks(fold(one())), strict=True):
        expected = f"before\n{BEGIN}\n\n{shown}\n\n{END}\nafter\n"
        assert (tmp_path / page).read_text(encoding="utf-8") == expected


def test_the_command_names_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.json").write_text("{", encoding="utf-8")
    assert matrix.main(["damaged.json"]) == 2
    assert "damaged.json is not a whole report" in capsys.readouterr().err
    assert matrix.main([]) == 64


# ---------------------------------------------------------------------------------------- terminal
def seen(*rounds: Round) -> str:
    console = Console(width=140, no_color=True)
    report = fold(*rounds)
    with console.capture() as capture:
        console.print(table(report))
        console.print(faults_table(report))
    return capture.get()


def test_the_terminal_shows_matrix_verdict_and_faults() -> None:
    shown = " ".join(seen(one()).replace("│", " ").split())
    assert "kafka exactly-once 1 1,200 1,200 4,000 0 clean" in shown
    assert "CLEAN · 1,200 crashes · 1 round · recovery 3.0 s median, 4.0 s worst" in shown
    assert "kill link.after_put 1,200 1,200" in shown


def test_the_terminal_says_why_it_is_not_clean_and_how_to_see_it_again() -> None:
    shown = seen(one(lost=3), one(2, fired=7))
    assert "ANOMALIES" in shown
    assert "id 12 is [lost]" in shown
    assert f"again: {one().command}" in shown
    assert "armed 1200 times, fired 7" in shown


def test_an_empty_report_is_shown_too() -> None:
    assert "no round has been run" in seen()
