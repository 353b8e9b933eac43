"""Programs of the matrix of chat clients, one for each library.

Each has a class for each protocol of its library, with a method for each cell, which `cells.py`
runs.
"""
