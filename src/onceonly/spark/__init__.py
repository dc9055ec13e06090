"""The bridge to Spark, and the only place that imports PySpark.

Two ways lead a micro-batch to the same coordinator. On the *format way* Spark calls a Python data source: it is
planned in a planner process, written in executors, decided in a commit process (``format``, ``task``,
``writer``). On the *foreachBatch way* everything but the tasks runs in the driver's own Python
(``foreach_batch``). Both write a slot with the same function, ``task.write_slot``. Which of the two a format's word
takes depends on what PySpark has (``versions``).
"""
