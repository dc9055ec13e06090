"""A journal: what a feed gives only once is written down first, and read from there as often as Spark asks.

::

    feed ──▶ receiver ──▶ segment (durable) ──▶ the feed is told ──▶ Spark's offset names the segment

``segments`` says how its files look, ``place`` where they lie, ``writer`` writes them and takes them away, ``reader``
is Spark's side, ``receiver`` carries a feed into it. One process writes a journal and one query reads it.
"""

from onceonly.sources.journal.options import Limits
from onceonly.sources.journal.place import Journal
from onceonly.sources.journal.reader import Position, Reader
from onceonly.sources.journal.writer import Writer

__all__ = ["Journal", "Limits", "Position", "Reader", "Writer"]
