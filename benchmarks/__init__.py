"""Benchmarks: peers side by side in one process, warm, medians with spread, dated JSON and pictures."""
