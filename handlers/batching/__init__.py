"""Tokenization, padding and packing of rows."""
