"""The worker process and the loaded model: threads, ranks, deadlines, jobs, optional packages."""
