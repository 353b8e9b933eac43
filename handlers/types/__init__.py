"""Requests to the engine, their parameters, and the description of a model."""
