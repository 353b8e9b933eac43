"""Benchmarks of this kit against other servers."""
