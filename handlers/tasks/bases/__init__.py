"""The base classes of tasks, by the kind of their rows, and what several tasks use."""
