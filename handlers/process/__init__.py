"""The process of a worker: deadlines, threads, ranks, cores and memory, optional packages."""
