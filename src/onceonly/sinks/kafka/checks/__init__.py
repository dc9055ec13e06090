"""What can be wrong with a Kafka target: asked before the first record, on the driver, once a start.

``hanging`` is asked by an operator: what is open in the target that no log knows.
"""
