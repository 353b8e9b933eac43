"""What an explanation of a mode is about: one file a mode, each with one class `Account`."""
