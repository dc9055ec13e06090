"""Servers that are started for the demo and for tests, and the jars they and Spark need."""
