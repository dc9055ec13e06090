"""Guards of Spark's own sources: what these would lose or read otherwise in silence is said before it happens."""
