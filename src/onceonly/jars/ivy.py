"""Fetches jars from a Maven repository with the Ivy that PySpark ships: no Maven needed."""

from __future__ import annotations

import importlib.util
import os
import selectors
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from onceonly.errors import SetupError
from onceonly.jars.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

REPOSITORY_VARIABLE = "ONCEONLY_MAVEN_REPOSITORY"
_CONNECT_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 30_000
_SILENCE_S_MAX = 60  # longer than either, so that one slow answer is Ivy's to report

# Jars are named one by one and checked by sha256: no pom, no checksum file is asked for.
# Without a root, Ivy takes Maven Central.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="maven"/>
  <property name="ivy.checksums" value=""/>
  <caches artifactPattern="[artifact]-[revision].[ext]"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="{connect}" readTimeout="{read}"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="maven" m2compatible="true" usepoms="false" timeoutConstraint="bounded"{root}/>
  </resolvers>
</ivysettings>
"""
_MODULE = """<ivy-module version="2.0">
  <info organisation="onceonly" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = """    <dependency org="{0}" name="{1}" rev="{2}" transitive="false" conf="default->default">
      <artifact name="{1}" type="{3}" ext="{3}"/>
    </dependency>"""


def find_ivy() -> Path:
    """Return the Ivy jar inside the installed PySpark, without importing PySpark.

    Raises:
        SetupError: PySpark is not installed, or ships no Ivy.
    """
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for jar in sorted(Path(folder, "jars").glob("ivy-2.*.jar")):
            return jar
    raise SetupError(
        "The jars are fetched by the Ivy that PySpark ships, and there is no PySpark here.",
        next_step="install it with `pip install 'onceonly[spark]'`, then run the command again",
    )


def parts(coordinates: str) -> tuple[str, str, str, str]:
    """Return group, artifact, version and kind (jar, where none is named) of ``group:artifact:version@kind``. Pure."""
    name, _, kind = coordinates.partition("@")
    group, artifact, version = name.split(":")
    return group, artifact, version, kind or "jar"


def fetch(coordinates: Iterable[str], folder: Path, on_line: Callable[[str], None]) -> list[str]:
    """Download each ``group:artifact:version`` as ``artifact-version.jar`` into ``folder``; ``…@zip`` as a zip.

    Blocks; makes one attempt; leaves what it got in the folder even where the rest failed. Each
    line that Ivy writes is handed to ``on_line``. Returns the lines that tell of a problem.

    Raises:
        SetupError: no Java or no Ivy here.
    """
    repository = os.environ.get(REPOSITORY_VARIABLE, "")
    root = f" root={quoteattr(repository.rstrip('/') + '/')}" if repository else ""
    settings = folder / "ivysettings.xml"
    settings.write_text(_SETTINGS.format(connect=_CONNECT_TIMEOUT_MS, read=_READ_TIMEOUT_MS, root=root))
    module = folder / "ivy.xml"
    dependencies = "\n".join(_DEPENDENCY.format(*parts(name)) for name in coordinates)
    module.write_text(_MODULE.format(dependencies=dependencies))
    command = [
        find_java(oldest=1),  # Ivy runs on whatever Spark does: 3.5 takes Java 8
        f"-Divy.default.ivy.user.dir={folder}",  # else it makes ~/.ivy2
        "-cp",
        str(find_ivy()),
        "org.apache.ivy.Main",
        *("-settings", str(settings)),
        *("-ivy", str(module)),
        *("-cache", str(folder)),
        *("-types", "jar", "zip"),
    ]
    problems: list[str] = []
    for line in _lines(command):
        on_line(line)
        if _is_problem(line):
            problems.append(line.strip())
    return problems


def _is_problem(line: str) -> bool:
    signs = ("exception", "error", "timed out", "not found", "[failed", "went silent")
    return any(sign in line.lower() for sign in signs)


def _lines(command: list[str]) -> Iterator[str]:
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdout is not None  # noqa: S101 - asked for one line above; tells mypy
        selector.register(process.stdout, selectors.EVENT_READ)
        rest = b""
        try:
            while True:
                # Where packets are dropped, Ivy would wait for each jar in turn and say nothing.
                if not selector.select(_SILENCE_S_MAX):
                    yield f"Ivy went silent for {_SILENCE_S_MAX} s: connection timed out"
                    return
                chunk = os.read(process.stdout.fileno(), 65_536)
                *complete, rest = (rest + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in complete)
                if not chunk:
                    return
        finally:
            process.kill()  # does nothing to a process that has ended
