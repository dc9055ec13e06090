"""Writing what records give into pages, between two marks, so that nobody types a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LATER = "Code that came later was not measured."
"""Behind the commit of whatever was recorded."""
NONE = "No run has been recorded yet."
"""The block of a run that nobody has recorded."""


def write(page: Path, block: str, *, name: str) -> None:
    """Write a block between the marks of ``name``. Any number of times; raises as ``placed`` does."""
    text = page.read_text(encoding="utf-8")
    page.write_text(placed(text, block, name=name, where=str(page)), encoding="utf-8")


def placed(text: str, block: str, *, name: str, where: str) -> str:
    """Return a page's text with the block between the marks of ``name``. Pure; ``where`` names the page in errors.

    Raises:
        ConfigurationError: the marks are not there, or not once.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended or begin in rest or end in before + after:
        raise ConfigurationError(
            f"{where} must have {begin} and, after it, {end}, once each", next_step="put them in"
        )
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def recorded_on(machine: Mapping[str, str | int | float], commits: Iterable[str], *, record: Path) -> str:
    """Return on which machine and code a run was recorded, as the end of a sentence. Pure."""
    load = f" with a load of {machine['load_before']} before it began" if "load_before" in machine else ""
    return (
        f"on {machine.get('cores')} cores and {machine.get('memory_gib')} GiB{load}, at "
        f"{', '.join(f'`{each}`' for each in commits)}; `{record}` has versions, too. {LATER}"
    )
