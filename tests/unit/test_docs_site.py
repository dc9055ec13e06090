"""The site: it builds without a warning, is whole in itself, and its pictures are drawn from the text that is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DIAGRAMS = ROOT / "docs" / "diagrams"


def load_render() -> Any:  # noqa: ANN401  a script, not a module
    spec = importlib.util.spec_from_file_location("render", DIAGRAMS / "render.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


render = load_render()
SOURCES: dict[str, str] = render.sources()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build as ``make docs`` does."""
    out = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--nitpicky", "--keep-going", "--quiet", "-d", str(out / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--builder", "html", *options, str(ROOT / "docs"), str(out / "html")],
        capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_the_site_builds_with_the_tables_that_are_made_from_the_code(site: Path) -> None:
    assert "IN_DOUBT" in (site / "reference" / "errors.html").read_text(encoding="utf-8")
    assert "link.after_put" in (site / "reference" / "failpoints.html").read_text(encoding="utf-8")
    assert "supervise" in (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert "link-file-not-synced" in (site / "explanation" / "mutants.html").read_text(encoding="utf-8")
    assert "kafka.delivery.timeout.ms" in (site / "reference" / "kafka-options.html").read_text(
        encoding="utf-8"
    )
    assert "maxRecordsPerFile" in (site / "reference" / "files-options.html").read_text(encoding="utf-8")
    assert "torn_transaction" in (site / "reference" / "campaign.html").read_text(encoding="utf-8")


def test_the_site_has_the_campaigns_report_where_one_is_recorded(site: Path) -> None:
    recorded = (ROOT / "docs" / "proof" / "result.json").exists()
    shown = (site / "reference" / "guarantee-matrix.html").read_text(encoding="utf-8")
    assert (site / "proof" / "report.html").exists() is recorded
    assert ('href="../proof/report.html"' in shown) is recorded


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    # Links may lead away; what a page loads may not.
    loads = re.compile(
        r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>|@import\s+url|url\(\s*[\"']?https?:"
    )
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 20
    found = [
        (page.name, match[0]) for page in pages for match in loads.finditer(page.read_text(encoding="utf-8"))
    ]
    assert not found


def test_the_site_shows_every_diagram(site: Path) -> None:
    shown = {path.stem for path in (site / "_images").glob("*.svg")}
    assert shown >= SOURCES.keys()


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_diagram_is_drawn_from_the_text_that_is_there(name: str) -> None:
    svg = (DIAGRAMS / f"{name}.svg").read_text(encoding="utf-8")
    assert render.drawn_from(svg) == render.fingerprint(SOURCES[name]), "run `make diagrams`"


def test_there_is_no_diagram_without_a_text() -> None:
    assert {path.stem for path in DIAGRAMS.glob("*.svg")} == SOURCES.keys()


def test_the_picture_of_the_house_has_every_layer_of_the_contract() -> None:
    drawn = render.house('[[tool.importlinter.contracts]]\nid = "layers"\nlayers = ["(a) : (b)", "c"]\n')
    assert '"**a**   **b**" as layer0' in drawn
    assert "layer0 -down-> layer1" in drawn
