"""The file sink: written beside the target's files, linked into place, listed in a manifest per epoch."""

from onceonly.sinks.files.sink import FilesSink

__all__ = ["FilesSink"]
