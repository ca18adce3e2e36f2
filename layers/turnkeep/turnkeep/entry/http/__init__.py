"""The HTTP contract: events in, use cases called, replies out."""
