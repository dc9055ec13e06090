"""What a row of a change feed says of its key, by a word in a column of its own. Pure."""

from __future__ import annotations

PASS_OVER, UPSERT, DELETE = 0, 1, 2
OPS = {
    **dict.fromkeys(
        ("insert", "update", "upsert", "i", "u", "c", "r", "+i", "+u", "update_postimage"), UPSERT
    ),
    **dict.fromkeys(("delete", "d", "-d"), DELETE),
    **dict.fromkeys(("update_preimage", "-u"), PASS_OVER),
}
"""What the column ``op`` may say, in any case: as Debezium, Flink and Delta's change feed say it. Rows that tell how a
row was before are passed over."""
