"""The manifests: each Kustomization renders, fits the schemas, and is as safe as it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer

from hf_serve.hosts.kserve import main
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.properties import read_properties
from tests.deploy.rendered import FOLDERS, MANIFESTS, pods, render, unpack_kubectl
from tests.e2e.clients import run_client

KSERVE = "serving.kserve.io"
SCHEMAS = "1.37"
TORCHSERVE = MANIFESTS / "torchserve"
CUSTOM_RUNTIME = MANIFESTS / "kserve" / "custom-runtime"
BASE_CONFIG = TORCHSERVE / "base" / "config.properties"
# What is different in a container: other pods connect, and the folders are others.
OF_CONTAINER = {"inference_address", "metrics_address", "model_store", "vmargs"}
# Ports that TorchServe takes by default and config.properties of the repository names.
LOCAL_PORTS = {"grpc_inference_port", "grpc_management_port"}


PRE_STOP_SECONDS = 5


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_kubectl(tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(params=FOLDERS, ids=lambda path: str(path.relative_to(MANIFESTS)))
def objects(request: pytest.FixtureRequest, kubectl: Path) -> list[dict[str, Any]]:
    return render(kubectl, request.param)


def test_objects_of_kubernetes_fit_its_schemas(objects: list[dict[str, Any]]) -> None:
    for each in objects:
        if KSERVE not in each["apiVersion"]:
            kubernetes_validate.validate(each, SCHEMAS, strict=True)


@pytest.mark.nightly
def test_objects_of_kserve_fit_its_models_and_a_wrong_key_is_found(kubectl: Path) -> None:
    found = [
        each
        for folder in FOLDERS
        for each in render(kubectl, folder)
        if KSERVE in each["apiVersion"]
    ]
    assert {each["kind"] for each in found} == {"ServingRuntime", "InferenceService"}
    wrong = {
        "apiVersion": f"{KSERVE}/v1beta1",
        "kind": "InferenceService",
        "spec": {"predictor": {"model": {"modelFromat": {"name": "pytorch"}}}},
    }
    assert run_client("kserve_manifests", objects=[*found, wrong]) == {
        "unknown": ["InferenceService.spec.predictor.model.modelFromat"]
    }


def test_containers_have_no_rights(objects: list[dict[str, Any]]) -> None:
    for pod in pods(objects):
        (container,) = pod["containers"]
        security = {**pod.get("securityContext", {}), **container["securityContext"]}
        assert security["runAsNonRoot"]
        assert security["runAsUser"] > 0
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_containers_are_probed_and_bounded(objects: list[dict[str, Any]]) -> None:
    for pod in pods(objects):
        (container,) = pod["containers"]
        assert all(f"{probe}Probe" in container for probe in ("startup", "readiness", "liveness"))
        assert all(
            "sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume
        )


@pytest.mark.parametrize("folder", [TORCHSERVE, CUSTOM_RUNTIME], ids=lambda path: path.name)
@pytest.mark.parametrize("overlay", ["cpu", "gpu", "autoscaling"])
def test_an_overlay_limits_memory(kubectl: Path, folder: Path, overlay: str) -> None:
    (pod,) = pods(render(kubectl, folder / "overlays" / overlay))
    resources = pod["containers"][0]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"]


def test_the_autoscaler_alone_sets_the_replicas(kubectl: Path) -> None:
    found = {
        each["kind"]: each for each in render(kubectl, TORCHSERVE / "overlays" / "autoscaling")
    }
    deployment, autoscaler = found["Deployment"], found["HorizontalPodAutoscaler"]
    assert "replicas" not in deployment["spec"]
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    (metric,) = autoscaler["spec"]["metrics"]
    rules = (TORCHSERVE / "overlays" / "autoscaling" / "prometheus-adapter.yaml").read_text("utf-8")
    assert f"as: {metric['pods']['metric']['name']}" in rules


def test_pods_connect_to_nothing_and_metrics_are_for_prometheus(kubectl: Path) -> None:
    (policy,) = (
        each for each in render(kubectl, TORCHSERVE / "base") if each["kind"] == "NetworkPolicy"
    )
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert not policy["spec"].get("egress")
    ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert ports == ["http", "metrics"]


def test_the_configuration_is_that_of_the_repository() -> None:
    own, repository = read_properties(BASE_CONFIG), read_properties(ROOT / "config.properties")
    assert own.keys() == repository.keys() - LOCAL_PORTS
    assert {name for name, value in own.items() if value != repository[name]} == OF_CONTAINER
    assert own["management_address"] == "http://127.0.0.1:8081"


def test_the_configuration_reaches_the_container(kubectl: Path) -> None:
    found = {each["kind"]: each for each in render(kubectl, TORCHSERVE / "base")}
    (pod,) = pods([found["Deployment"]])
    (volume,) = (each for each in pod["volumes"] if each["name"] == "config")
    assert volume["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    assert found["ConfigMap"]["data"]["config.properties"] == BASE_CONFIG.read_text("utf-8")


def test_the_custom_runtime_is_started_with_options_of_the_command_line(kubectl: Path) -> None:
    found = {each["kind"]: each for each in render(kubectl, CUSTOM_RUNTIME / "base")}
    (pod,) = pods([found["ServingRuntime"]])
    *program, host, port, name, models = pod["containers"][0]["args"]
    assert program == ["python", "-m", "hf_serve.hosts.kserve"]
    assert (host, models) == ("--host=0.0.0.0", "/mnt/models")
    app = typer.Typer()
    app.command()(main)
    context = typer.main.get_command(app).make_context("kserve", [host, port, name, models])
    assert context.params["http_port"] == pod["containers"][0]["ports"][0]["containerPort"]
    service = found["InferenceService"]["spec"]["predictor"]
    assert service["model"]["runtime"] == found["ServingRuntime"]["metadata"]["name"]
    seconds = service["terminationGracePeriodSeconds"]
    assert seconds > context.params["grace_period"] + PRE_STOP_SECONDS


def test_keda_reads_the_queue_time_of_the_model(kubectl: Path) -> None:
    found = {
        each["kind"]: each for each in render(kubectl, CUSTOM_RUNTIME / "overlays/autoscaling")
    }
    service = found["InferenceService"]
    (metric,) = service["spec"]["predictor"]["autoScaling"]["metrics"]
    query = metric["external"]["metric"]["query"]
    assert f'model_name="{service["metadata"]["name"]}"' in query
    (name,) = set(re.findall(r"(request_\w+_seconds)_", query))
    assert f'Histogram("{name}"' in (ROOT / "hosts/batch_metrics.py").read_text("utf-8")
