"""One file a workload; each has a `run(options)`."""
