"""How transformers says that a package of quantized weights is not installed."""

from __future__ import annotations


def lacks_package(error: Exception) -> bool:
    """Return whether weights were not loaded because the package of their quantization is missing.

    Breaks when transformers raises another error for a missing package: with GPTQ, it is the
    NameError of a class that it could not import.
    """
    return isinstance(error, (ImportError, NameError))
