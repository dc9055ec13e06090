"""What tunes Spark's Python processes: how they start, what memory they keep, what is never collected."""
