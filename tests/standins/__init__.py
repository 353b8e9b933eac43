"""Small local servers that stand in for what the tests must not need: a network."""
