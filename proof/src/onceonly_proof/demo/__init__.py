"""The main job: Kafka → windows → Kafka under kills, and an audit that shares no code with the sink.

``data`` what is streamed · ``job`` the Spark job, in its own process · ``killer`` plans
where it is killed · ``lives`` starts, watches and kills it, as a whole ``process`` tree · ``follow`` reads the
event log while it grows · ``watch`` sees what becomes visible, and when · ``audit`` compares with the data file ·
``report``, ``timeline`` and ``picture`` show it · ``options`` and ``run`` are the whole.
"""
