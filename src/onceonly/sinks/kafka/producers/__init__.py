"""What sends rows inside a transaction, and who owns its transactional id. Executor."""
