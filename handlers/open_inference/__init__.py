"""The Open Inference Protocol's parts: tensors in JSON and in bytes, paths, and what is told."""
