"""Bucketed tables: sorted once into buckets and shards, joined as often as needed without a shuffle."""
