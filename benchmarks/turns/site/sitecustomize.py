"""Python runs this when it starts, if its folder is on the path: see ``benchmarks.turns``."""  # noqa: INP001

from benchmarks.turns import take_turns

take_turns()
