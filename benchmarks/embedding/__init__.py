"""The benchmark of sentence embeddings."""
