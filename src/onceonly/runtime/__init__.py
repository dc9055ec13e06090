"""Carries out the protocol's commands: threads, retries, checks, restart strategies. No Spark."""
