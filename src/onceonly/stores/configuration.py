"""Hadoop's settings from files, for a process without a session to ask: ``core-site.xml``, ``spark-defaults.conf``.

What they hold may be secrets: no error shows a line of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly.errors import ConfigurationError
from onceonly.stores.access import HADOOP, Hadoop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FOLDER: Final = "HADOOP_CONF_DIR"
"""The environment's name for the folder of Hadoop's own files."""
FILES: Final = ("core-site.xml", "hdfs-site.xml", "spark-defaults.conf")
"""What is read of a folder."""

_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_OF_ENVIRONMENT = re.compile(r"env\.(?P<name>[^:-]+)(?::?-(?P<default>.*))?")
_NESTED_MAX = 20
# As java.util.Properties reads a line: a name, then blanks, "=" or ":", then the rest.
_PAIR = re.compile(r"(?P<name>(?:\\.|[^\\\s=:])+)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_BLANKS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def settings(given: Iterable[Path], environment: Mapping[str, str] | None = None) -> Hadoop:
    """Read the files of ``HADOOP_CONF_DIR``, then those that are given, or those in a folder; later ones win.

    Operator's process. Raises ``ConfigurationError`` that names a file which cannot be read.
    """
    around = os.environ if environment is None else environment
    own = around.get(FOLDER)
    files = _files(Path(own)) if own else []
    for place in given:
        files += _files(place) if place.is_dir() else [place]
    found: dict[str, str] = {}
    for file in files:
        found |= _read(file)
    return Hadoop({name: _expanded(value, found, around) for name, value in found.items()})


def _files(folder: Path) -> list[Path]:
    return [folder / name for name in FILES]


def _read(file: Path) -> dict[str, str]:
    try:
        data = file.read_bytes()
        is_xml = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"
        return _of_xml(file, data) if is_xml else dict(properties(data.decode("utf-8-sig")))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _unreadable(file, str(error.strerror)) from None
    except UnicodeDecodeError:
        raise _unreadable(file, "it is no text") from None


def _of_xml(file: Path, data: bytes) -> dict[str, str]:
    """Return the properties of a file such as ``core-site.xml``."""
    from xml.etree import ElementTree as ET  # seldom needed, and slow to import

    try:
        root = ET.fromstring(data)  # noqa: S314  the operator's own file
    except ET.ParseError as error:
        raise _unreadable(file, f"it is no XML, line {error.position[0]}") from None
    pairs = (
        (each.findtext("name", "").strip(), each.findtext("value", "")) for each in root.iter("property")
    )
    return {name: value for name, value in pairs if name}


def properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield the properties of a file such as ``spark-defaults.conf``."""
    begun = ""
    for each in re.split(r"\r\n|\r|\n", text):
        line = begun + each.lstrip()
        if not begun and line[:1] in {"", "#", "!"}:
            continue
        # An odd number of backslashes at its end: it goes on in the next line.
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun = line[:-1] if goes_on else ""
        match = None if goes_on else _PAIR.fullmatch(line)
        if match is not None:
            yield _unescaped(match["name"]), _unescaped(match["value"]).strip()


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _BLANKS.get(escape, escape)

    return _ESCAPE.sub(plain, text)


def _expanded(value: str, told: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Put in what a value names, as Hadoop does: other settings, and ``env.NAME``. What is not known stays."""

    def named(match: re.Match[str]) -> str:
        outside = _OF_ENVIRONMENT.fullmatch(match[1])
        if outside is None:
            return told.get(match[1], told.get(HADOOP + match[1], match[0]))
        default = match[0] if outside["default"] is None else outside["default"]
        return environment.get(outside["name"]) or default

    for _ in range(_NESTED_MAX):
        before, value = value, _VARIABLE.sub(named, value)
        if value == before:
            break
    return value


def _unreadable(file: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Hadoop's settings in {file} cannot be read: {why}",
        next_step=f"correct --hadoop-conf, or {FOLDER} in the environment",
    )
