"""Rows become records of Kafka: columns, partitions, refusals, and the batches that go out. Executor."""
