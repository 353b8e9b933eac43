"""What the entry point does with TorchServe's context and messages."""
