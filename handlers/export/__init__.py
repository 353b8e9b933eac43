"""Exporting a checkpoint to another format and comparing the result with it."""
