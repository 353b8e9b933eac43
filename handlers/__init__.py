"""One TorchServe handler for every Hugging Face task; goes into each archive whole."""

from .compat.imports import add_name

# Here and nowhere else: pyproject.toml reads it, and an archive has no other copy of it.
__version__ = "0.2.0"

# An archive has the package as `handlers`, an environment as `hf_serve.handlers`. Code of users may
# import it by either name, and gets the same modules.
add_name(__name__, "hf_serve.handlers" if __name__ == "handlers" else "handlers")
