"""The benchmark of rerankers."""
