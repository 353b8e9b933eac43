from __future__ import annotations

import subprocess
import sys

import pytest

from handlers.runtime.imports import hide_packages


def test_a_module_is_missing_within_and_found_behind() -> None:
    with hide_packages("cgitb", "json", silence="tests"):
        import json  # noqa: F401, PLC0415 - imported before, so it stays

        with pytest.raises(ImportError):
            import cgitb  # noqa: PLC0415
    import cgitb  # noqa: F401, PLC0415


def test_the_handler_is_imported_without_what_takes_long_and_serves_nothing() -> None:
    heavy = {"torch._inductor.compile_fx", "sklearn"}
    told = f"import sys, handlers.transformers_handler; print({heavy!r} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "set()"
