"""Rows as Arrow has them: their memory, their checksum, and the loops over them that numba compiles. Any process."""
