"""The stream join on Spark's Structured Streaming: the only part of `streaming` that imports pyspark."""
