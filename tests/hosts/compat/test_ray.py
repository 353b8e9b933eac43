from __future__ import annotations

import subprocess
from tempfile import TemporaryDirectory

import pytest

from hf_serve.scripts.installation import ROOT
from tests.hosts.host_python import RAY_PYTHON

CHECK = """
import sys
from pathlib import Path
from hf_serve.hosts.compat.ray import start
from hf_serve.hosts.ray_environment import import_ray

ray, folder = import_ray(local=True), Path(sys.argv[1])
address = start(ray, folder, namespace="test", num_cpus=1, object_store_bytes=80_000_000)
assert address.startswith("127.0.0.1:"), address
assert any(folder.iterdir())
ray.shutdown()
"""


@pytest.mark.ray
def test_ray_is_started_in_a_folder_on_the_loopback_interface() -> None:
    # The path of a socket has at most 107 bytes, which that of `tmp_path` takes most of.
    with TemporaryDirectory(prefix="ray-") as folder:
        subprocess.run([RAY_PYTHON, "-c", CHECK, folder], cwd=ROOT, check=True)
