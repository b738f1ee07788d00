"""Spark's daemon of Python workers, with everything that a worker imports already there when it is forked.

Workers that had nothing to do for a minute end, and one that begins spends a second on imports. Numpy is kept from
starting threads, for what is forked should have none.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pandas  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import evenkeel  # noqa: F401

if __name__ == "__main__":
    manager()
