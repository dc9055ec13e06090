"""Who sends and who reads in a run of latency, each in a process of its own."""
