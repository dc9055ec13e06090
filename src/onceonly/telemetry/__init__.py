"""What a query tells to the tools that people have: metrics for Prometheus, traces for OpenTelemetry.

All of it is read from the decision log, and from what Spark reports of an epoch, in the driver's Python and beside the
epochs: nothing of a query waits for it, and nothing of it can fail a query that has begun. As the log keeps a line of
every epoch, counters go on after a restart; and with the job down the same figures come from the log alone.

``totals``, ``lag``, ``figures`` and ``spans`` are pure; ``following`` reads a log; ``exposition`` and ``otlp`` are the
only ones that know the client libraries, of the extras ``metrics`` and ``traces``; ``watching`` is what the driver has.
"""
