"""The servers to compare, one module each."""
