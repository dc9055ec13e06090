"""What a user says of a query: its options, its sinks by name, its restart strategy."""
