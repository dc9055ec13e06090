"""How the site is built: ``make docs`` writes it to ``build/docs``, from what is here and installed, and no network."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.mutation.defects import DEFECTS

from onceonly import failpoints
from onceonly.errors import OnceonlyError
from onceonly.guards import promises
from onceonly.sinks.files.options import DECLARED
from onceonly.sinks.kafka.options import OWN_OPTIONS
from onceonly.sinks.kafka.producer_options import Use, told
from onceonly.spark.configure import SETTINGS
from onceonly.telemetry.figures import families
from onceonly_proof.auditor.anomalies import ALLOWED, Anomaly
from onceonly_proof.campaign import matrix, page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

project = "onceonly"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"
html_title = "onceonly"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

# A heading can be linked to as on GitHub: page.md#the-heading.
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
nitpick_ignore_regex = [
    # Types in signatures: documented by others, or of the house's inside.
    (r"py:.*", r"(abc|collections|enum|pa|pathlib|pyarrow|pyspark|rich|typing)\..*"),
    (r"py:class", r"[A-Z][\w.]*(\[.*)?"),
    # The same things under their public names are on the page.
    (r"py:.*", r"onceonly(_proof)?\.(auditor|campaign|conformance|model|options|ports|runtime|spark)\..*"),
]


class Table(SphinxDirective):
    """A table made from the code itself, so that it cannot differ from it."""

    head: str

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Return the cells, in Markdown."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Parse the table as if it stood on the page."""
        lines = [" | ".join(("", *row, "")).strip() for row in self.rows()]
        return self.parse_text_to_nodes("\n".join([self.head, *lines, ""]))


class Errors(Table):
    """The tree of errors."""

    head = "| code | class | what it means | restartable |\n|---|---|---|---|"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Walk down the tree."""
        queue = list(OnceonlyError.__subclasses__())
        for kind in sorted(queue, key=lambda kind: kind.code):
            queue += kind.__subclasses__()
        for kind in sorted(queue, key=lambda kind: kind.code):
            meaning = " ".join((inspect.getdoc(kind) or "").replace("``", "`").split())
            yield f"`{kind.code}`", f"`{kind.__name__}`", meaning, "yes" if kind.restartable else "no"


class Failpoints(Table):
    """The crash points."""

    head = "| point | where |\n|---|---|"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield them in the order in which an epoch passes them."""
        for name, where in failpoints.NAMES.items():
            yield f"`{name}`", where.replace("|", "\\|")


class Settings(Table):
    """What ``onceonly.configure`` sets."""

    head = "| setting | why | risk |\n|---|---|---|"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield them in the order in which they are set."""
        for setting in SETTINGS:
            value = setting.shown or f"`{setting.value.rpartition('.')[2]}`"
            yield f"`{setting.name}` = {value}", setting.why, setting.risk


class Anomalies(Table):
    """What the auditor looks for."""

    head = "| anomaly | what it means | allowed under |\n|---|---|---|"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield them in the auditor's order."""
        for anomaly in Anomaly:
            allowed = ", ".join(guarantee for guarantee, names in ALLOWED.items() if anomaly in names)
            yield f"`{anomaly}`", anomaly.sentence, allowed


class KafkaOptions(Table):
    """The own options of the Kafka sink, or those of the producer with the treatment that the argument names."""

    head = "| option | values, notes |\n|---|---|"
    optional_arguments = 1
    final_argument_whitespace = True

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield options of one note in one row."""
        if not self.arguments:
            for name, meaning in OWN_OPTIONS.items():
                yield f"`{'includeHeaders' if name == 'includeheaders' else name}`", meaning
            return
        for note, names in told(Use(self.arguments[0])).items():
            yield ", ".join(f"`kafka.{name}`" for name in names), note


class FilesOptions(Table):
    """The options of the file sink."""

    head = "| option | meaning | default |\n|---|---|---|"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield them as they are declared."""
        for each in DECLARED:
            default = f"`{each.default}`" if each.default else ""
            yield f"`{each.name}`", each.doc, "required" if each.required else default


class Options(Table):
    """The options that a module declares."""

    head = FilesOptions.head
    required_arguments = 1

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield them as they are declared."""
        for each in importlib.import_module(self.arguments[0]).DECLARED:
            default = f"`{each.default}`" if each.default else ""
            yield f"`{each.name}`", each.doc, "required" if each.required else default


class Metrics(Table):
    """The metrics of a query."""

    head = "| metric | kind | meaning |\n|---|---|---|"

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield them in the order in which they are served."""
        for each in families(()):
            yield f"`{each.name}`", each.kind, each.help


class Promises(SphinxDirective):
    """What a query promises from end to end, by source and sink."""

    def run(self) -> list[nodes.Node]:
        """Parse the table as if it stood on the page."""
        head, *rows = promises.table()
        lines = [head, ("---",) * len(head), *rows]
        return self.parse_text_to_nodes("\n".join([*(f"| {' | '.join(line)} |" for line in lines), ""]))


class Mutants(Table):
    """The defects of one group that tests must catch."""

    head = "| defect | name | in | caught by |\n|---|---|---|---|"
    required_arguments = 1
    final_argument_whitespace = True

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield them in the order of their table."""
        for each in DEFECTS:
            if each.group == self.arguments[0]:
                tests = ", ".join(f"`{test.partition('::')[2]}`" for test in each.tests)
                yield each.what, f"`{each.name}`", f"`{each.file}`", tests


RECORDED = Path(__file__).parent / "proof" / "result.json"
"""The report of the long campaign, once there is one."""


class Proof(SphinxDirective):
    """A link to the campaign's report, which is drawn when the site is built."""

    def run(self) -> list[nodes.Node]:
        """Return nothing where no report has been recorded: the page says so itself."""
        self.env.note_dependency(str(RECORDED))
        if not RECORDED.exists():
            return []
        link = nodes.reference("", "The whole report", refuri="../proof/report.html", internal=True)
        return [nodes.paragraph("", "", link, nodes.Text(" shows every round, fault and recovery time."))]


def draw_report(app: Sphinx, failure: Exception | None) -> None:
    """Draw the campaign's report into the site."""
    report = None if failure or app.builder.format != "html" else matrix.recorded(RECORDED)
    if report is not None:
        page.write(Path(app.outdir) / "proof" / "report.html", report)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Make the tables known."""
    app.add_directive("onceonly-errors", Errors)
    app.add_directive("onceonly-failpoints", Failpoints)
    app.add_directive("onceonly-anomalies", Anomalies)
    app.add_directive("onceonly-settings", Settings)
    app.add_directive("onceonly-kafka-options", KafkaOptions)
    app.add_directive("onceonly-files-options", FilesOptions)
    app.add_directive("onceonly-options", Options)
    app.add_directive("onceonly-metrics", Metrics)
    app.add_directive("onceonly-promises", Promises)
    app.add_directive("onceonly-mutants", Mutants)
    app.add_directive("onceonly-proof", Proof)
    app.connect("build-finished", draw_report)
    return {"parallel_read_safe": True}
