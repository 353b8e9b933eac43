"""One TorchServe handler for every Hugging Face task; goes into each archive whole."""

# Here and nowhere else: pyproject.toml reads it, and an archive has no other copy of it.
__version__ = "0.2.0"
