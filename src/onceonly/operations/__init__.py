"""What an operator sees and does while the job is down: without Spark, and without a sink's client library.

Only ``audit``, ``doctor``, and of ``transactions`` all but ``list`` without ``--ask`` contact a sink; ``files expire``
reads and deletes files of a target. Everything else reads the files of the checkpoint. Those are changed by
``transactions commit``, ``abort`` and ``divert`` and by ``checkpoints accept-move``, and a journal's by ``journal
drop``. The command line in ``onceonly.cli`` is a thin shell around this.
"""
