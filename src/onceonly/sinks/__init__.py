"""One folder a system, the same file names in each: options, writer, committer."""
