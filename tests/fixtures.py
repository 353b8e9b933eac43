"""The fixtures of all tests, and what has to be set before the tests are collected.

`tests/conftest.py` loads them in the processes that run tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, settings

from hf_serve.handlers.checkpoints.archive_signature import PUBLIC_KEY
from hf_serve.handlers.compat.openvino import disable_usage_reports
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.scripts.archives.packing import pack
from tests import tiny
from tests.samples import keys_of
from tests.serving import Served
from tests.standins import torch_neuron, torch_neuronx

# Tests do not fail on a busy machine, and a run that failed can be repeated.
settings.register_profile(
    "kit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kit")

# Files of tests import OpenVINO themselves.
disable_usage_reports()


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    """Compute with one thread, whatever an earlier module sets."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_key() -> Iterator[None]:
    """Trust archives without a signature, whatever key the test before has checked them with."""
    os.environ.pop(PUBLIC_KEY, None)
    yield
    os.environ.pop(PUBLIC_KEY, None)


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    """Silence progress bars, as the worker does."""
    silence_libraries()


@pytest.fixture(scope="session", autouse=True)
def neuron() -> Iterator[None]:
    """Replace the packages of AWS Neuron by stand-ins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch_neuron", torch_neuron)
        patch.setitem(sys.modules, "torch_neuronx", torch_neuronx)
        yield


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A tiny checkpoint: `checkpoint(mode, family="Roberta")`; do not write into it."""

    @cache
    def write(mode: str, **config: Any) -> Path:
        return tiny.write(tmp_path_factory.mktemp(mode), mode, **config)

    return write


@pytest.fixture(scope="session")
def served(checkpoint: Callable[..., Path]) -> Callable[..., Served]:
    """A tiny model that answers requests: `served(mode, max_length=16, family="Roberta")`."""

    loaded: dict[str, Served] = {}

    def load(mode: str, *, family: str = "Bert", **handler: Any) -> Served:
        key = repr((mode, family, sorted(handler.items())))
        if key not in loaded:
            loaded[key] = Served(checkpoint(mode, family=family), mode, **handler)
        return loaded[key]

    return load


@pytest.fixture(scope="session")
def packed(
    checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """A tiny model's .mar in a format: `packed("onnx", mode, family="Roberta")`."""
    build = tmp_path_factory.mktemp("build")

    @cache
    def make(save_mode: str, mode: str, family: str = "Bert", extra: tuple[Path, ...] = ()) -> Path:
        folder = tmp_path_factory.mktemp("packed")
        config = folder / f"{mode}_{family}_{save_mode}.yaml"
        named = str(checkpoint(mode, family=family))
        handler = {"mode": mode, "model_name": named, "dtype": "float32", **keys_of(save_mode)}
        document = {"startupTimeout": 480, "handler": handler}
        config.write_text(yaml.safe_dump(document), encoding="utf-8")
        return pack(config, export_path=folder, extra_files=extra, build=build, checked=False).path

    return make


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pair of keys that openssl made, and another public key."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("own", "other"):
        private, public = folder / f"{name}.pem", folder / f"{name}.pub"
        make: list[str | Path] = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", private]
        subprocess.run(make, check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    return folder


@pytest.fixture
def processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replace the processor of this machine by one with other flags."""
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr("hf_serve.handlers.checkpoints.dtypes.CPUINFO", cpuinfo)

    def say(flags: str) -> None:
        cpuinfo.write_text(f"flags : {flags}\n", encoding="utf-8")

    return say
