"""Families of sinks: what several systems share, so that a sink of one of them stays small. No sink imports another."""
