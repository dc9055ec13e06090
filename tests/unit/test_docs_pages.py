"""The pages of README and docs: what can be told of them without running what they show."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import onceonly
from onceonly import failpoints
from onceonly.errors import OnceonlyError
from onceonly.settings.registry import BUILT_IN

sys.path.insert(0, str(Path(__file__).parents[1] / "acceptance"))

from doc_blocks import ROOT, RUN, SHOWN, blocks, extract, matches, pages, transcript

PAGES = pages()
BLOCKS = [block for page in PAGES for block in blocks(page)]
# A command of a shell, a container's file, a resource of Kubernetes.
COMMANDS = re.compile(
    r"^(?:\$ |(?:\w+=\S+ )*(?:[\w/.-]*/)?(?:pip|uv|conda|python|spark-submit|aws|gcloud|kubectl|kafka-[\w-]+\.sh)\s"
    r"|FROM |apiVersion:)",
    re.MULTILINE,
)


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def codes(kind: type[OnceonlyError] = OnceonlyError) -> set[str]:
    # Those that users meet: the demo and tests have errors of their own.
    children = [child for child in kind.__subclasses__() if child.__module__ == OnceonlyError.__module__]
    return {child.code for child in children}.union(*map(codes, children))


def is_figure(code: str) -> bool:
    """Say whether an indented block, which has no language, is neither Python nor commands."""
    try:
        ast.parse(code)
    except SyntaxError:
        return not code.startswith("$ ")
    return False


# ---------------------------------------------------------------------------------------- blocks
def test_every_code_block_is_run_by_a_test_or_is_no_code() -> None:
    # test_docs.py runs every block of a language in RUN, on every page.
    others = [
        block
        for block in BLOCKS
        if block.language not in RUN | SHOWN
        and not re.fullmatch(r"\{[\w-]+\}", block.language)
        and not (block.language == "indented" and is_figure(block.code))
    ]
    assert not others, [f"{block.place}: {block.language or 'no language'}" for block in others]


def test_commands_that_no_test_runs_say_so() -> None:
    shown = [block for block in BLOCKS if block.language == "text" and COMMANDS.search(block.code)]
    assert shown
    silent = [block.place for block in shown if not block.code.startswith("# not run by the tests\n")]
    assert not silent


def test_until_it_is_released_every_page_installs_it_from_a_checkout() -> None:
    found = [
        f"{page}: {line}"
        for page in [*PAGES, "proof/README.md"]
        for line in text(page).splitlines()
        if re.search(r"\binstall [^`]*['\" ]onceonly(-proof)?(\[|['\"` ]|$)", line)
    ]
    assert not found


@pytest.mark.parametrize("page", PAGES)
def test_the_names_of_a_pages_blocks_are_different(page: str) -> None:
    names = [block.name for block in blocks(page) if block.name]
    assert len(names) == len(set(names))


def test_a_page_without_the_block_asked_for_is_noticed() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        extract("README.md", "no-such-block")


def test_a_console_block_is_commands_with_their_output() -> None:
    shown = "$ one\nfirst\n\nlast\n$ two \\\n> more\n"
    assert transcript(shown) == [("one", "first\n\nlast\n"), ("two \\\nmore", "")]


@pytest.mark.parametrize(
    ("shown", "seen", "same"),
    [
        ("a  b\n", "a b\n", True),
        ("a b\n", "a c\n", False),
        ("a\n", "a\nb\n", False),
        ("…\nb\n", "a\na\nb\n", True),
        ("…\nb\n", "b\n", True),
        ("a\n…\n", "a\n", True),
        ("took … s\n", "took 0.3 s\n", True),
        ("took … s\n", "took 0.3 ms\n", False),
        ("(.*)\n", "anything\n", False),
        ("", "", True),
        ("", "a\n", False),
    ],
)
def test_an_output_is_as_shown_but_for_spaces_and_dots(shown: str, seen: str, *, same: bool) -> None:
    assert matches(shown, seen) is same


# ------------------------------------------------------------------------------------ the 40 lines
def test_the_sink_of_the_docs_has_at_most_40_lines() -> None:
    code = extract("docs/how-to/write-a-sink.md", "sink")
    lines = [line for line in code[code.index("class ") :].splitlines() if line.strip()]
    assert len(lines) <= 40


# ------------------------------------------------------------------------------------------- links
@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    # The site's own links are checked where it is built.
    inline = [token for token in MarkdownIt("commonmark").parse(text(page)) if token.type == "inline"]
    parts = [part for token in inline for part in token.children or ()]
    found = [
        part.attrGet("href") or part.attrGet("src") for part in parts if part.type in {"link_open", "image"}
    ]
    missing = [
        link for link in found if "://" not in str(link) and not (ROOT / str(link).split("#")[0]).exists()
    ]
    assert not missing


# ------------------------------------------------------------------------------------------ length
def test_the_readme_has_at_most_900_words_with_its_tables() -> None:
    assert len(text("README.md").split()) <= 900


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_a_page_has_at_most_2500_words(page: str) -> None:
    # What grows beyond is parted by its readers' tasks.
    assert len(text(page).split()) <= 2500


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/adr/")])
def test_a_decision_has_one_page(page: str) -> None:
    assert len(text(page).split()) <= 400


# -------------------------------------------------------------------------------------- completeness
def test_every_public_name_is_in_the_reference() -> None:
    found = re.findall(r"^\.\. auto\w+:: ([\w.]+)", text("docs/reference/api.md"), re.MULTILINE)
    documented = {name.removeprefix("onceonly.").split(".")[0] for name in found} - {"looking", "spark"}
    assert documented == set(dir(onceonly))


@pytest.mark.parametrize(
    "page", ["explanation/guarantees", "how-to/choose-a-sink", "reference/where-it-runs"]
)
def test_every_sink_is_named_where_sinks_are_compared(page: str) -> None:
    shown = text(f"docs/{page}.md").lower()
    missing = [name for name in sorted(set(BUILT_IN) - {"console"}) if not re.search(rf"\b{name}\b", shown)]
    assert not missing


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/when-stuck.md"])
def test_every_error_has_something_to_do(page: str) -> None:
    shown = set(re.findall(r"`([A-Z_]+)`", text(page)))
    assert codes() <= shown, codes() - shown


def test_the_crash_points_that_pages_name_exist() -> None:
    named = {point for page in PAGES for point in re.findall(r"FAILPOINTS=\"([\w.]+)", text(page))}
    assert named
    assert named <= failpoints.NAMES.keys()
