"""Joins of streams: strategies, the joiner, the epoch loop, and their adapter to Structured Streaming."""
