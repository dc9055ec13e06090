"""The sinks for OpenSearch and Elasticsearch: rows as documents by key. One sink, and a client for each."""

from onceonly.sinks.opensearch.sink import ElasticsearchSink, OpenSearchSink

__all__ = ["ElasticsearchSink", "OpenSearchSink"]
