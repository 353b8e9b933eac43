"""Rows of tokens: tokenization, padding and packing."""
