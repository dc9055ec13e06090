"""The benchmark: onceonly beside Spark's own Kafka sink and PyFlink, on one machine, in one run, interleaved."""
