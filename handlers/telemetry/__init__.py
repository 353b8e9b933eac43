"""Counts, times and log levels."""
