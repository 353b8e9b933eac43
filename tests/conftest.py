from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.durations import slowest_modules

pytest_plugins = ["tests.sentences"]

# More threads would slow tiny models down, and servers and tests share the cores.
# Handlers use the number that is set here, in this process and in those that tests start.
os.environ["OMP_NUM_THREADS"] = "1"

# Characters of a text that names a case of a test.
LONGEST_ID = 200

# The tests in `tests/e2e` that start servers of their own, which run beside the shared one.
OWN_SERVERS = frozenset(
    {
        *("test_adapters", "test_continuous_batching", "test_old_yaml", "test_other_modes"),
        *("test_retrieval", "test_rollout", "test_scaling", "test_tensor_parallel"),
        *("test_two_machines", "test_worker"),
    }
)


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, which import torch and transformers, where tests run.

    With processes of pytest-xdist, this is not the one that starts the others.
    """
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        # What is imported and collected is never garbage; to look through it takes a sixth of the
        # time until the first test.
        gc.disable()
        config.pluginmanager.import_plugin("tests.fixtures")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage from now on, without looking through what is there already."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file, and those that share a server, in one process of pytest-xdist.

    The slowest files start first, so that no process waits long for another one at the end.
    """
    seconds = slowest_modules()
    items.sort(key=lambda item: -seconds.get(_file_of(item), 0.0))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group_of(item)))
        if Path(_file_of(item)).parent.name == "e2e":
            item.add_marker(pytest.mark.server)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _group_of(item: pytest.Item) -> str:
    """Return the file of a test, or one name for the tests of the server of `tests/e2e`."""
    path = Path(_file_of(item))
    shares = path.parent.name == "e2e" and path.stem not in OWN_SERVERS
    return "shared server" if shares else str(path)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes, of which some differ in each process, and long texts by their argument."""
    is_long = isinstance(val, str) and len(val) > LONGEST_ID
    return argname if isinstance(val, bytes) or is_long else None


@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def require_groups(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stop where pytest-xdist does not read the groups, as it cannot with pytest 9.2."""
    if getattr(config.option, "loadgroup", False) and not all("@" in item.nodeid for item in items):
        raise pytest.UsageError(
            "pytest-xdist has not read the groups; install its versions in requirements/dev.txt"
        )
