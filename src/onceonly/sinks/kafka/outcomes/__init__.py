"""What has become of a transaction: the cluster is asked for its marker, its partitions and its own rows. Looks only.

Only ``marker`` has another side, too: what is put into the transaction, so that it can be looked up.
"""
