from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hf_serve.handlers.compat import openvino as compat
from hf_serve.handlers.compat.imports import hide_incompatible

pytestmark = pytest.mark.openvino
ROOT = Path(__file__).resolve().parents[3]


def test_an_operation_of_the_tokenizers_is_a_node_of_a_graph() -> None:
    import numpy as np  # noqa: PLC0415
    from openvino import opset13  # noqa: PLC0415

    create = compat.tokenizer_operation()
    places = [opset13.constant(np.array([each], dtype=np.int32)) for each in (0, 1)]
    letters = opset13.constant(np.frombuffer(b"a", dtype=np.uint8))
    node = create("StringTensorPack", [each.output(0) for each in (*places, letters)], {})
    assert node.outputs()[0].get_element_type().get_type_name() == "string"


@pytest.mark.nightly
def test_packages_that_are_imported_send_no_reports_of_their_use() -> None:
    """Each would be sent from a fork of the process."""
    script = (
        "import sys\n"
        "forks = []\n"
        "sys.addaudithook(lambda event, _: forks.append(event) if event == 'os.fork' else None)\n"
        "from hf_serve.handlers.process.packages import require_package\n"
        "for package in ('openvino', 'openvino_genai', 'nncf', 'optimum.intel.openvino'):\n"
        "    require_package(package, 'this test', '')\n"
        "loaded = [name for name in sys.modules if name.startswith('openvino_telemetry.')]\n"
        "print(forks, loaded)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[] []\n"


PLUGINS = """
import ctypes, gc, os, signal, sys, time
from hf_serve.handlers.process.packages import require_package
openvino = require_package("openvino", "this test", "")

def stack():
    found = (ctypes.c_void_p * 3)()
    ctypes.CDLL(None).sigaltstack(None, found)
    return list(found)

def model():
    number = openvino.opset13.parameter([1], openvino.Type.f32)
    return openvino.Model([openvino.opset13.relu(number)], [number])

before = stack()
devices, cores = [], [openvino.Core() for _ in range(4)]
models = [openvino.compile_model(model(), "CPU"), cores[0].compile_model(model(), "CPU")]
devices += cores[1].available_devices, cores[2].get_property("CPU", "FULL_DEVICE_NAME")
cores[2].query_model(model(), "CPU")
cores[3].set_property("CPU", {"PERF_COUNT": "NO"})
print(stack() == before)
while models:
    del models[0]
    gc.collect()
del cores
gc.collect()
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_is_handled_after_models_have_ended_in_any_order() -> None:
    command = [sys.executable, "-c", PLUGINS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "True\ninterrupted\n")


@pytest.mark.parametrize("name", ["openvino_genai_process.py", "openvino_genai_trial.py"])
def test_a_program_disables_the_reports_before_it_imports_openvino(name: str) -> None:
    text = (ROOT / "handlers" / "generation" / "backends" / name).read_text(encoding="utf-8")
    assert text.index('["disable_usage_reports"]()') < text.index("\nimport openvino")


def test_optimum_refuses_gemma_of_a_newer_transformers_outside_of_the_block() -> None:
    with hide_incompatible("optimum.intel.openvino"):
        gemma = import_module("optimum.exporters.openvino.model_configs").GemmaOpenVINOConfig
    latest = gemma.MAX_TRANSFORMERS_VERSION
    assert latest is not None
    with compat.gemma_of_any_transformers():
        assert gemma.MAX_TRANSFORMERS_VERSION is None
    assert latest == gemma.MAX_TRANSFORMERS_VERSION


@pytest.mark.parametrize("name", ["openvino.py", "torch.py", "vllm.py"])
def test_a_file_that_runs_without_the_kit_imports_nothing_of_it(name: str) -> None:
    tree = ast.parse(Path(compat.__file__).with_name(name).read_text(encoding="utf-8"))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [module for module in modules if (module or "handlers").startswith("handlers")]
