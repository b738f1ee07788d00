"""Helpers for tests of joins: skewed data, and results compared as multisets."""

from evenkeel.testing.rows import assert_same_rows, multiset
from evenkeel.testing.skew import ride_hailing, zipf_keys, zipf_table

__all__ = ["assert_same_rows", "multiset", "ride_hailing", "zipf_keys", "zipf_table"]
