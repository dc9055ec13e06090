"""The jars of Spark's Kafka connector, fetched from Maven by a lock list."""
