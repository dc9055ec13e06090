"""What can be wrong with a Kafka target, asked before the first record. Driver, once a start."""
