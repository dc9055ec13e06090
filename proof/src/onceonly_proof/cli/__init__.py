"""The commands that this distribution brings to ``onceonly``: ``demo`` and ``verify``."""
