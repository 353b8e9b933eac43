"""Metrics, stage times and log levels."""
