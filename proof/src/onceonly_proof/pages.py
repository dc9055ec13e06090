"""Fills the templates that lie beside the code; whatever is put into one is escaped. Needs the extra ``demo``."""

from __future__ import annotations

import functools

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(package: str, name: str, **values: object) -> str:
    """Return a template of a package, filled. A value that it asks for and does not get is an error."""
    return _templates(package).get_template(name).render(values)


@functools.cache
def _templates(package: str) -> Environment:
    found = Environment(
        loader=PackageLoader(package, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["thousands"] = "{:,}".format
    return found
