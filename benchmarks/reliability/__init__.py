"""Faults that a server has to survive, and what clients see of them."""
