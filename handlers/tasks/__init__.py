"""What is asked of a model: one file a mode, each with one class `Task`."""
