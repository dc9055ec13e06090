"""One attempt at one slot: it begins, writes, prepares and votes, within its time; dead letters go beside. Executor."""
