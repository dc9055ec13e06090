"""The Kafka sink: prepared by librdkafka on executors, committed by kafka-python from the driver."""

from onceonly.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
