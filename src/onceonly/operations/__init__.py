"""What an operator sees and does while the job is down: without Spark, and without a sink's client library.

Only ``transactions explain``, ``commit``, ``abort`` and ``list --ask`` contact a sink. Everything else reads the files
of the checkpoint and changes none of them. The command line in ``onceonly.cli`` is a thin shell around this.
"""
