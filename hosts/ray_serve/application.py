"""The applications of a Ray Serve configuration: one for each archive, and one for the routes.

    applications:
      - name: sequence_classification
        route_prefix: null
        import_path: hosts.ray_serve.application:model
        args: {archive: /models/sequence_classification.mar}
      - name: routes
        route_prefix: /
        import_path: hosts.ray_serve.application:routes

The name of a model's application is the model's. Batches, replicas, queue and time limits of a
model come from the YAML in its archive.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt
from ray import serve
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import LoggingConfig

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.process.resources import available_cores
from hf_serve.hosts.archives import config_file, open_archive
from hf_serve.hosts.asgi.application import Application, Settings
from hf_serve.hosts.defaults import MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, OFFLINE, QUEUE_SIZE
from hf_serve.hosts.one_process import require_one_process
from hf_serve.hosts.ray_serve.ingress import MODEL, RayBackend
from hf_serve.hosts.ray_serve.replica import Replica

# Requests that the routes hold at once; before, the queue of a model is full.
MAX_HELD_REQUESTS = 4096
# Access logs have the paths of requests, and cost a millisecond each.
LOGGING = LoggingConfig(enable_access_log=False)


class ModelArgs(BaseModel):
    """The `args` of a model's application.

    Attributes:
        archive: the path of the archive, on each machine.
        num_cpus: the cores that each replica reserves; the scheduler of Ray counts with them.
        num_threads: the threads of each replica; by default the cores, shared by `maxWorkers`.
        max_request_bytes: the limit of a body without its compression.
    """

    model_config = ConfigDict(extra="forbid")

    archive: Path
    num_cpus: NonNegativeFloat = 1.0
    num_threads: PositiveInt | None = None
    num_gpus: NonNegativeFloat = 0.0
    max_request_bytes: PositiveInt = MAX_REQUEST_BYTES
    max_response_bytes: PositiveInt = MAX_RESPONSE_BYTES


class RoutesArgs(BaseModel):
    """The `args` of the routes' application.

    Attributes:
        body_seconds: seconds in which a body must arrive.
        answer_seconds: seconds in which a response, or its next part, must be ready.
    """

    model_config = ConfigDict(extra="forbid")

    max_request_bytes: PositiveInt = MAX_REQUEST_BYTES
    body_seconds: PositiveFloat = 60.0
    answer_seconds: PositiveFloat = 600.0


def model(args: ModelArgs) -> Any:
    """Return the application of an archive.

    Raises:
        ArchiveError: there is no such archive.
        WrongConfig: its YAML is invalid, or is for TorchServe only.
    """
    archive = open_archive(args.archive)
    config = ModelConfig.read(config_file(archive.folder))
    require_one_process(config, args.archive)
    deployment = serve.deployment(
        Replica,
        name=MODEL,
        ray_actor_options=_resources(args, config),
        max_ongoing_requests=_requests_in_replica(config),
        max_queued_requests=config.jobQueueSize or QUEUE_SIZE,
        # New replicas answer before the replicas of the archive before end.
        max_surge_percent=100,
        graceful_shutdown_timeout_s=config.responseTimeout,
        logging_config=LOGGING,
        **_replicas(config),
    )
    return deployment.bind(
        archive=str(args.archive.resolve()),
        name=archive.name,
        max_request_bytes=args.max_request_bytes,
        max_response_bytes=args.max_response_bytes,
    )


def routes(args: RoutesArgs) -> Any:
    """Return the application of the routes."""

    def build() -> Application:
        settings = Settings(args.max_request_bytes, body_seconds=args.body_seconds)
        return Application(RayBackend(args.answer_seconds), settings)

    deployment = serve.deployment(
        serve.ingress(build)(),
        name="Routes",
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=MAX_HELD_REQUESTS,
        max_surge_percent=100,
        logging_config=LOGGING,
    )
    return deployment.bind()


def _resources(args: ModelArgs, config: ModelConfig) -> dict[str, Any]:
    threads = args.num_threads or max(1, available_cores() // config.maxWorkers)
    variables = {**OFFLINE, "OMP_NUM_THREADS": str(threads)}
    return {
        "num_cpus": args.num_cpus,
        "num_gpus": args.num_gpus,
        "runtime_env": {"env_vars": variables},
    }


def _requests_in_replica(config: ModelConfig) -> int:
    """Return how many requests a replica takes: the running batch, and the next one."""
    return config.batchSize if config.continuousBatching else 2 * config.batchSize


def _replicas(config: ModelConfig) -> dict[str, Any]:
    if config.minWorkers == config.maxWorkers:
        return {"num_replicas": config.minWorkers}
    scaling = AutoscalingConfig(
        min_replicas=config.minWorkers,
        max_replicas=config.maxWorkers,
        target_ongoing_requests=config.batchSize,
    )
    return {"autoscaling_config": scaling}
