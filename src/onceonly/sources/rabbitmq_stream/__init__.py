"""Messages of a stream of RabbitMQ, as a source by offset: what an epoch reads is fixed before a task runs.

It is read by AMQP 0.9.1 and pika, as queues are: that needs no plugin and no further port of the server, and gives each
message its exact offset (``x-stream-offset``).

An offset of the stream is the name of a message that was there, with a hash of it. Every attempt begins at the message
that was read last and ends at the last one of its share, and sees both: so it notices what retention has taken, and a
stream that was made anew. Offsets have gaps, as the server keeps notes of its own between messages; so only messages
that were seen are named.
"""
