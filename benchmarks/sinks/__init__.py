"""Sinks beside what people use in their place: ``python -m benchmarks.sinks``. Half an hour, on a quiet machine.

One Spark session writes the same epochs, two slots each, with one contender after the other, in turns, to one real
server: onceonly, Spark's own writers in ``foreachBatch``, transactions prepared or tables filled by executors, and
clients of keyed stores by the same ids. All rows are counted after each run.
"""
