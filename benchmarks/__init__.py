"""What speed is claimed, and how it was measured."""
