"""Messages of a classic or quorum queue of RabbitMQ, acknowledged when they are in the journal."""

from onceonly.sources.rabbitmq.feed import RabbitFeed

__all__ = ["RabbitFeed"]
