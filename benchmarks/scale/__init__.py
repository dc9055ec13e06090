"""How it grows: the log, the commit phase and the broker, with slots, sinks and epochs."""
