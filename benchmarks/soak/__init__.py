"""A query that runs for long, and what its processes hold meanwhile: does anything grow?"""
