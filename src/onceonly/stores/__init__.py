"""Where the files of a decision log live: a port for whole objects that are written once, and a folder behind it."""
