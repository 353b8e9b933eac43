"""The model-config.yaml: keys, types, defaults and validation."""
