"""Requests to brokers and what their answers mean: the only room that knows kafka-python."""
