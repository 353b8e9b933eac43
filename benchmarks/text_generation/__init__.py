"""The benchmark of text generation, which `benchmarks/generation.py` runs."""
