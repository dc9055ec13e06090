"""Carries out the protocol's commands on the driver: plans, commits, sweeps, and asks the sinks. No Spark."""
