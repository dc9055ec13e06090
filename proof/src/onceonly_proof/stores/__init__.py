"""The laws of a store, as tests that every store must pass, and two stores for tests: in memory, and a hostile one."""
