"""The page of checkpoints: a small server on this machine that only reads. Needs the extra ``ui``; never Spark.

``serving`` starts and ends it, ``gate`` lets in who has the token, ``roster`` knows which queries there are,
``watcher`` reads the log of one once for all who look, ``stream`` tells them what is new, ``application`` has the
addresses, ``pages`` fills them by the one renderer.
"""
