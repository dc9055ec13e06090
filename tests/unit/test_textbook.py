"""The textbook: recordings that fit the code, pictures that show them and nothing else, and one file that is whole."""

from __future__ import annotations

import base64
import hashlib
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from onceonly import cli, failpoints
from onceonly.cli import shared
from onceonly.errors import SetupError
from onceonly_proof.cli.textbook import textbook
from onceonly_proof.textbook import crashes, pictures, recordings
from onceonly_proof.textbook.draw import stills
from onceonly_proof.textbook.fits import differences, fits
from onceonly_proof.textbook.page import page
from onceonly_proof.textbook.values import Crash, Fits, Look, Step

DOCS = Path(__file__).parents[2] / "docs"
RECORDED = recordings.read()
PICTURES = pictures.draw(RECORDED)
PAGE = page(PICTURES)
EVERY = {row for rows in crashes.EVEN for row in rows}
BYTES_MAX = 1_000_000


def told(name: str, found: recordings.Recordings = RECORDED) -> str:
    [picture] = [each for each in pictures.draw(found) if each.name == name]
    return "".join(f"{frame.told}{frame.svg()}" for frame in picture.frames)


# ---------------------------------------------------------------------------------------- recordings
@pytest.mark.parametrize("name", RECORDED.__struct_fields__)
def test_a_recording_fits_the_code(name: str) -> None:
    assert differences(getattr(RECORDED, name).fits) == [], "record it anew: make textbook"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"log_format": 1}, f"the log's format was 1 and is {fits().log_format}"),
        ({"failpoints": fits().failpoints[1:]}, "the crash point plan.before_resolve is new"),
        ({"failpoints": (*fits().failpoints, "plan.gone")}, "the crash point plan.gone is gone"),
        ({"failpoints": fits().failpoints[::-1]}, "the crash points have another order"),
        ({"moves": fits().moves[1:]}, "the move of the protocol Abandoning + ChainRead is new"),
    ],
)
def test_a_recording_of_other_code_is_noticed(change: dict[str, object], said: str) -> None:
    other: Fits = msgspec.structs.replace(fits(), **change)
    assert differences(other) == [said]


def test_a_recording_of_another_format_is_refused(tmp_path: Path) -> None:
    data = (recordings.FOLDER / "growth.json").read_bytes()
    (tmp_path / "growth.json").write_bytes(data.replace(b'"rows":', b'"lines":'))
    with pytest.raises(SetupError, match=r"textbook\.record"):
        recordings.load(tmp_path / "growth.json", type(RECORDED.growth))


def test_every_crash_point_that_a_query_passes_has_its_run() -> None:
    assert [each.point for each in RECORDED.crashes.crashes] == list(failpoints.EVERYWHERE)
    assert all(each.where == failpoints.NAMES[each.point] for each in RECORDED.crashes.crashes)


@pytest.mark.parametrize("crash", RECORDED.crashes.crashes, ids=lambda crash: crash.point)
def test_a_recorded_crash_has_lost_and_doubled_nothing_and_shown_nothing_undecided(crash: Crash) -> None:
    assert sorted(crash.after.visible) == sorted(EVERY)
    assert crash.after.open == 0
    assert (crash.after.link, crash.after.receipt, crash.after.noted) == ("GLOBAL_COMMIT", True, True)
    assert set(crash.before.visible) == {"a0", "a1", "b0", "b1"}
    assert len(crash.between.visible) == len(set(crash.between.visible))
    if crash.between.link != "GLOBAL_COMMIT":
        assert crash.between.visible == crash.before.visible
    assert [step.note for step in crash.steps if step.kind == "killed"] == [
        point for point in (crash.first, crash.point) if point
    ]


def test_the_snapshot_has_the_figures_of_the_textbook() -> None:
    counts = RECORDED.counts
    assert counts.barriers[0] == 1000
    assert counts.states[0] == {"App01": 5000, "App02": 4000}
    assert counts.lives[0].killed_at == "offset 1100"
    assert counts.lives[0].read[-1] == (1000, 1100)
    assert counts.lives[1].read[0][0] == 1000
    # Counted once, whatever was read again.
    assert counts.states[1] == {
        app: views * counts.records // len(counts.views) for app, views in counts.views.items()
    }


def test_the_steps_of_slots_that_run_side_by_side_are_told_in_the_order_of_slots() -> None:
    lines = [
        {"kind": kind, "slot": slot}
        for kind, slot in [
            ("epoch.planned", -1), ("slot.begun", 1), ("slot.prepared", 1), ("slot.begun", 0), ("slot.prepared", 0),
            ("link.persisted", -1), ("handle.committed", 1), ("handle.committed", 0), ("receipt.persisted", -1),
        ]
    ]  # fmt: skip
    found = [(step.kind, step.slot) for step in crashes.in_order(1, lines)]
    assert found == [
        ("epoch.planned", -1), ("slot.begun", 0), ("slot.begun", 1), ("slot.prepared", 0), ("slot.prepared", 1),
        ("link.persisted", -1), ("handle.committed", 0), ("handle.committed", 1), ("receipt.persisted", -1),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------ pictures
def without_style(svg: str) -> str:
    """Leave out the style sheet, which is all pictures' and may be newer than the file."""
    return re.sub("<style>.*?</style>", "", svg, flags=re.DOTALL)


def test_there_are_eight_pictures_and_each_frame_says_what_it_shows() -> None:
    assert len({each.name for each in PICTURES}) == 8
    for picture in PICTURES:
        names = [frame.name for frame in picture.frames]
        assert len(names) == len(set(names)) > 1
        assert 0 <= picture.still < len(names)
        for frame in picture.frames:
            drawn = ET.fromstring(frame.svg(alone=True))  # noqa: S314  of our own making
            title = drawn.find("{http://www.w3.org/2000/svg}title")
            assert title is not None
            assert title.text == f"{frame.name}: {frame.told}" == drawn.get("aria-label")


def test_a_picture_names_the_run_that_it_is_drawn_from() -> None:
    for each in PICTURES:
        assert each.made.date in each.source
        assert f"PySpark {each.made.versions['pyspark']}" in each.source
        assert re.fullmatch("[0-9a-f]{12}", each.made.commit), "recorded from code that was changed"


def test_a_crash_is_one_button_and_shows_what_its_run_has_shown() -> None:
    [picture] = [each for each in PICTURES if each.name == "crash"]
    assert [frame.name for frame in picture.frames] == ["all steps", *failpoints.EVERYWHERE]
    frames = {frame.name: str(frame.svg()) for frame in picture.frames}
    for crash in RECORDED.crashes.crashes:
        shown = frames[crash.point]
        looks = (crash.before, crash.between, crash.after)
        assert shown.count(": visible</title>") == sum(len(look.visible) for look in looks)
        assert shown.count(": written, not visible</title>") == sum(len(look.waiting) for look in looks)
        assert f"killed at {crash.point}" in shown


def test_a_doubled_row_would_be_seen_in_the_picture() -> None:
    first, *rest = RECORDED.crashes.crashes
    assert "NOT once" not in told("crash")
    doubled: Look = msgspec.structs.replace(first.after, visible=(*first.after.visible, "a1"))
    bad = msgspec.structs.replace(
        RECORDED.crashes, crashes=(msgspec.structs.replace(first, after=doubled), *rest)
    )
    assert "NOT once" in told("crash", msgspec.structs.replace(RECORDED, crashes=bad))


def test_two_phase_commit_has_the_textbooks_words_where_the_run_has_their_steps() -> None:
    words = ("VOTE_REQUEST", "VOTE_COMMIT", "VOTE_ABORT", "GLOBAL_COMMIT", "GLOBAL_ABORT")
    assert all(f">{word}</text>" in told("two-phases") for word in words)
    without = tuple(step for step in RECORDED.crashes.aborts if step.kind != "slot.failed")
    bad = msgspec.structs.replace(RECORDED.crashes, aborts=without)
    assert ">VOTE_ABORT</text>" not in told("two-phases", msgspec.structs.replace(RECORDED, crashes=bad))


def test_one_vote_is_void_where_the_other_slot_has_failed() -> None:
    steps = [step for step in RECORDED.crashes.aborts if step.life == 1]
    assert [step.kind for step in steps].count("slot.voted") == 1
    assert "slot.failed" in [step.kind for step in steps]
    assert [step.note for step in steps if step.kind == "link.persisted"] == ["ABORT"]
    assert not [step for step in steps if step.kind == "handle.committed"]


def test_the_snapshot_is_drawn_with_its_figures() -> None:
    shown = told("snapshot")
    for figure in ("(0, 1000)", "(App01, 5000) (App02, 4000)", "(0, 1100)"):
        assert figure in shown


def test_a_snapshot_keeps_files_of_the_one_before() -> None:
    snapshots = [each for each in RECORDED.growth.versions if each.snapshot is not None]
    assert len(snapshots) > 1
    assert not snapshots[0].kept
    assert all(sum(each.kept) > sum(each.added) > 0 for each in snapshots[1:])


def test_the_page_says_that_sparks_barriers_do_not_flow() -> None:
    assert "Spark has no barriers that flow" in PAGE


@pytest.mark.parametrize("name", [f"{each.name}.svg" for each in PICTURES])
def test_the_docs_show_what_is_recorded(name: str) -> None:
    shown = (DOCS / "proof" / "textbook" / name).read_text(encoding="utf-8")
    assert without_style(shown) == without_style(stills()[name]), "run: make proof-pages"
    assert f"../proof/textbook/{name}" in (DOCS / "explanation" / "textbook.md").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------- page
class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags() -> list[tuple[str, dict[str, str | None]]]:
    parser = _Tags()
    parser.feed(PAGE)
    return parser.found


def test_the_page_is_one_file_that_fetches_nothing() -> None:
    assert len(PAGE.encode()) <= BYTES_MAX
    for _, attributes in tags():
        assert not {"src", "srcset", "data", "poster"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in PAGE
    assert "@import" not in PAGE


def test_the_policy_lets_the_pages_own_script_and_style_run_and_nothing_else() -> None:
    [policy] = [
        each["content"] for tag, each in tags() if each.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        [inside] = re.findall(f"<{tag}>(.*?)</{tag}>", PAGE, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not [each for _, each in tags() if "style" in each or any(name.startswith("on") for name in each)]


def test_without_javascript_every_step_is_there() -> None:
    steps = [each for tag, each in tags() if tag == "li" and "data-name" in each]
    assert len(steps) == sum(len(picture.frames) for picture in PICTURES)
    assert not [each for each in steps if "hidden" in each]
    assert not [tag for tag, _ in tags() if tag == "button"]


def test_no_two_places_of_the_page_have_the_same_name_and_every_link_leads_to_one() -> None:
    names = [each["id"] for _, each in tags() if "id" in each]
    assert len(names) == len(set(names))
    assert {(each.get("href") or "")[1:] for tag, each in tags() if tag == "a"} <= set(names)


# ------------------------------------------------------------------------------------------- command
def test_the_command_writes_the_file_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_of_proof", lambda name: {"textbook": textbook}[name])
    opened: list[str] = []

    def open_it(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_it)
    out = tmp_path / "book.html"
    assert cli.run(["textbook", "--out", str(out), "--no-browser"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text(encoding="utf-8") == PAGE
    assert opened == []
    # A browser of text would take the terminal of who has come by ssh.
    assert cli.run(["textbook", "--out", str(out)]) == 0
    assert opened == []
    assert "open the file in one" in capsys.readouterr().err
    monkeypatch.setattr(shared, "has_screen", lambda: True)
    assert cli.run(["textbook", "--out", str(out)]) == 0
    assert opened == [out.as_uri()]


def test_a_folder_that_takes_no_file_is_a_message_and_no_stack_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_of_proof", lambda name: {"textbook": textbook}[name])
    assert cli.run(["textbook", "--out", "/proc/book.html", "--no-browser"]) != 0
    told_of = capsys.readouterr().err
    assert "/proc/book.html" in told_of
    assert "Traceback" not in told_of


def test_a_step_of_several_lives_is_told_life_by_life() -> None:
    crash = next(each for each in RECORDED.crashes.crashes if each.first)
    lives = [step.life for step in crash.steps]
    assert lives == sorted(lives)
    assert max(lives) == 3
    assert isinstance(crash.steps[0], Step)
