"""The Kafka sink: rows are prepared on executors, and committed from the driver."""

from onceonly.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
