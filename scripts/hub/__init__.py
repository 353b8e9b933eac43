"""Downloads of checkpoints and adapters from a model hub."""
