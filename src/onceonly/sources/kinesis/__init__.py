"""Records of a stream of Kinesis, as a source whose ranges are fixed by whoever reads them first.

An offset says where each shard is read from, and by which tasks: it is durable before a task runs. Where a task's share
ends, nobody knows before it has read: the first attempt that has read puts the ends, once, before its first row. Every
other attempt, also of a later life, reads exactly that.
"""
