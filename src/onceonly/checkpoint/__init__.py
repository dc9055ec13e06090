"""Spark's own checkpoint: read, made durable, compared with the decisions, mended after a power cut. Driver."""
