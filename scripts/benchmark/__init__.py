"""Measures the formats of one model on this machine."""
