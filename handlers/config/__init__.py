"""The model-config.yaml: its keys, their types and their defaults."""
