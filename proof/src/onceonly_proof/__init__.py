"""Tools for the tests of onceonly and of everybody who builds on it.

Nothing is imported here: a job of a benchmark uses a module of it where onceonly's own packages are not installed.
"""
