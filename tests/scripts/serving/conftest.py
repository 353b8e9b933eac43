from __future__ import annotations

from functools import partial

import pytest

from hf_serve.hosts.fork_server.start import ForkServer


@pytest.fixture
def small_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start servers whose fork server imports only what TorchServe's worker imports itself.

    The archives of a few lines need no more, and the packages of models take 8 s to import.
    """
    small = partial(ForkServer, modules=["torch"], package=None)
    monkeypatch.setattr("hf_serve.scripts.serving.torchserve.ForkServer", small)
