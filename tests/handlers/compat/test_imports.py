from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.handlers.compat.imports import hide_packages, run_file


def test_a_module_is_hidden_inside_the_context_only() -> None:
    with hide_packages("pyclbr", "json", silence="tests"):
        import json  # noqa: F401, PLC0415 - imported before, so it stays

        with pytest.raises(ImportError):
            import pyclbr  # noqa: PLC0415
    import pyclbr  # noqa: F401, PLC0415


@pytest.mark.nightly
def test_the_handler_is_imported_without_slow_modules_that_it_does_not_use() -> None:
    # transformers 5.5 itself imports torch._dynamo.
    heavy = {"torch._inductor.compile_fx", "matplotlib", "sklearn"}
    program = f"import sys, handlers.transformers_handler; print({heavy!r} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "set()"


@pytest.mark.openvino
@pytest.mark.nightly
def test_optimum_loads_where_another_part_of_it_has_found_diffusers() -> None:
    program = """
import optimum.utils
from hf_serve.handlers.process.packages import require_package
assert optimum.utils.is_diffusers_available()
print(require_package("optimum.intel.openvino", "format", "").OVModelForFeatureExtraction.__name__)
import optimum.exporters.openvino.model_configs
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "OVModelForFeatureExtraction"


def test_classes_of_a_file_find_their_module(tmp_path: Path) -> None:
    path = tmp_path / "a_file.py"
    path.write_text("class Found: ...\n")
    found = run_file(path, "a_file_of_this_test").Found
    assert sys.modules[found.__module__].Found is found
