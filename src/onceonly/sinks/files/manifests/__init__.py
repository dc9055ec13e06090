"""Manifests: which files belong to which epoch, how old epochs expire, and how whole epochs are read."""
