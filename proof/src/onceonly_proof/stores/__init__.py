"""The laws of a store, as tests that every store must pass, and a store in memory for tests."""
