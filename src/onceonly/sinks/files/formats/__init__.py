"""Rows become the bytes of a file, as Spark's own writers make them, or are refused. Executor."""
