"""What the options of every keyed sink of a campaign are: a row replaces its key's, the greatest input number stays."""

from __future__ import annotations

from typing import Final

SEQUENCE: Final = "number"
"""The column that a job adds for such a sink: the number of the input row."""
KEYED: Final = {"key": "key", "sequence": SEQUENCE}
