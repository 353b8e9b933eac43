from __future__ import annotations

import subprocess

import pytest

from scripts.paths import ROOT
from tests.hosts.host_python import KSERVE_PYTHON

CHECK = """
from kserve.model_repository import ModelRepository
from kserve.protocol.dataplane import DataPlane
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from hosts.compat.kserve import create_application

route = Route("/v1/models", lambda request: PlainTextResponse("ours"))
client = TestClient(create_application(DataPlane(ModelRepository()), [route]))
assert client.get("/v1/models").text == "ours"
assert client.get("/v2/health/live").status_code == 200
"""


@pytest.mark.kserve
def test_own_routes_precede_those_of_the_sdk() -> None:
    subprocess.run([KSERVE_PYTHON, "-c", CHECK], cwd=ROOT, check=True)
