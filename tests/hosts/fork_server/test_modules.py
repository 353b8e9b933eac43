"""What the fork server imports of the kit's own environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hf_serve.hosts.fork_server.start import KIT_PACKAGE, MODULES
from tests.hosts.fork_server.running import Running, running

# Packages change rarely, and servers in other tests fork their workers.
pytestmark = pytest.mark.nightly

# What may be decided when a library is loaded, and not when it is used.
STATE = """
import gc, json, locale, logging, os, sys, tempfile
import numpy, torch, transformers
print(json.dumps({
    "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
    "tasks": len(os.listdir("/proc/self/task")),
    "dtype": str(torch.get_default_dtype()),
    "gradients": torch.is_grad_enabled(), "path": sys.path, "flags": list(sys.flags),
    "handlers": [str(each) for each in logging.root.handlers], "level": logging.root.level,
    "locale": locale.getlocale(), "encoding": sys.stdout.encoding,
    "buffering": sys.stdout.line_buffering, "temporary": tempfile.gettempdir(),
    "verbosity": transformers.logging.get_verbosity(),
    "offline": transformers.utils.hub.is_offline_mode(),
    "cuda": [torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork()],
    "switch": sys.getswitchinterval(), "recursion": sys.getrecursionlimit(),
}))
print(gc.get_freeze_count() > 0)
"""


@pytest.fixture(scope="module", params=["1", "3"])
def server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Running]:
    variables = {"OMP_NUM_THREADS": request.param, "HF_HUB_OFFLINE": "1"}
    folder: Path = tmp_path_factory.mktemp("worker")
    with running(folder, MODULES, package=KIT_PACKAGE, **variables) as started:
        yield started


def test_a_fork_has_the_state_of_an_ordinary_start(server: Running) -> None:
    code, forked, errors = server.run(STATE)
    ordinary = server.run(STATE, OTHER="1")[1]

    assert (code, errors) == (0, "")
    state, is_forked = forked.splitlines()
    other, is_other_forked = ordinary.splitlines()
    assert (is_forked, is_other_forked) == ("True", "False")
    expected = json.loads(other)
    # OpenBLAS starts its threads again when it needs them.
    assert json.loads(state) == {**expected, "tasks": 1}


def test_workers_draw_other_random_numbers(server: Running) -> None:
    source = (
        "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(1))"
    )
    first, second = (server.run(source)[1].split() for _ in range(2))

    assert len(first) == len(second) == 3
    assert not set(first) & set(second)


def test_every_module_imports(server: Running) -> None:
    server.run("")

    assert "is not imported" not in server.log()
