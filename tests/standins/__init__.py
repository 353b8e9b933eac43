"""Small local servers and modules that replace what the tests must not need, such as a network."""
