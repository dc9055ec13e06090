"""How the site is built: ``make docs`` writes it to ``build/docs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly import failpoints
from onceonly.errors import OnceonlyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

sys.dont_write_bytecode = True
HERE = Path(__file__).parent

project = "onceonly"
author = "the onceonly authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["generated/*"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "onceonly"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

# A heading can be linked to as on GitHub: page.md#the-heading.
myst_heading_anchors = 3
# The site is read where there is no network: nothing is loaded from elsewhere.
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"show-inheritance": True}
python_use_unqualified_type_names = True
# Named in signatures, and documented by others, or inside the house.
nitpick_ignore_regex = [
    (r"py:.*", r"(pa|pyarrow|pyspark|collections|typing|pathlib|rich|abc|enum)\b.*"),
]
