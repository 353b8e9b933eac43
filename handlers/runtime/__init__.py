"""The process that a model runs in: threads, ranks, optional packages."""
