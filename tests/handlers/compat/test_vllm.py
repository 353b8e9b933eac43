from __future__ import annotations

import subprocess

import pytest

from hf_serve.handlers.compat import vllm as compat
from tests.vllm_python import VLLM_PYTHON

CHECK = """
import inspect, runpy, sys
from vllm.distributed.device_communicators import shm_broadcast
assert "sched_yield()" in inspect.getsource(shm_broadcast), "vLLM waits in another way"
runpy.run_path(sys.argv[1])["pause_while_polling"]()
assert shm_broadcast.sched_yield() is None
"""


@pytest.mark.vllm
def test_vllm_waits_by_a_function_of_the_module() -> None:
    subprocess.run([VLLM_PYTHON, "-P", "-c", CHECK, str(compat.__file__)], check=True)
