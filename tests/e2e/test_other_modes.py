"""The modes that `make demo` leaves out, each with its demo model, several on one server.

They are held to what the other tests claim for the default modes. The clients of embeddings and
rankings run against the server that has both models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.explainers import targets
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.e2e import (
    test_describe,
    test_explanations,
    test_malformed,
    test_openapi,
    test_predictions,
)
from tests.e2e.clients import run_client
from tests.e2e.gateway import gateway_to
from tests.e2e.served import served_modes
from tests.embedding_clients import (
    CHECKS,
    DOCUMENTS,
    EMBEDDING,
    QUERY,
    RANKING,
    TEXTS,
    EmbeddingServer,
)
from tests.hugging_face_calls import CALLS

pytestmark = pytest.mark.nightly

# A worker takes about 500 MB.
AT_ONCE = 6
PAIRS = [{"text": QUERY, "text_pair": document} for document in DOCUMENTS]
WITH_CLIENTS = (EMBEDDING, RANKING)
OTHERS = [mode for mode in modes() if mode not in served_modes()]
SERVED = list(dict.fromkeys([*WITH_CLIENTS, *OTHERS]))
GROUPS = [tuple(SERVED[start : start + AT_ONCE]) for start in range(0, len(SERVED), AT_ONCE)]


def each(wanted: Callable[[str], object]) -> pytest.MarkDecorator:
    """Return the mark that gives a test each of some modes and a server that has it."""
    found = [
        pytest.param(group, mode, id=mode)
        for group in GROUPS
        for mode in group
        if mode in OTHERS and wanted(mode)
    ]
    return pytest.mark.parametrize(
        ("group_server", "mode"), found, indirect=["group_server"], scope="module"
    )


every_mode = each(lambda mode: True)
every_explained_mode = each(targets.get)
every_mode_of_the_hubs_client = each({call.mode for call in CALLS}.__contains__)


@pytest.fixture(scope="module")
def group_server(
    request: pytest.FixtureRequest,
    pack_demo: Callable[[str, Path], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    store = tmp_path_factory.mktemp("group_server")
    for mode in request.param:
        pack_demo(mode, store)
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(model_store=store, workdir=workdir, timeout=480) as server:
        yield server


@pytest.fixture(scope="module")
def embedding_server(group_server: Server) -> EmbeddingServer:
    return EmbeddingServer(f"{group_server.inference_url}/predictions", tolerance=1e-3)


@pytest.mark.parametrize("group_server", GROUPS[:1], ids=["clients"], indirect=True, scope="module")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_client_gets_the_answers_to_plain_requests(
    embedding_server: EmbeddingServer, check: Callable[[EmbeddingServer], None]
) -> None:
    check(embedding_server)


@pytest.mark.parametrize("group_server", GROUPS[:1], ids=["clients"], indirect=True, scope="module")
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_tritons_clients_get_the_answers_to_plain_requests(
    group_server: Server, embedding_server: EmbeddingServer, transport: str
) -> None:
    given = {EMBEDDING: [{"text": text} for text in TEXTS], RANKING: PAIRS}
    with tritons_address(group_server, transport) as url:
        calls = [
            {"url": url, "model": mode, "inputs": tensors(rows), "id": "7"}
            for mode, rows in given.items()
        ]
        answers = run_client("triton_client", transport=transport, calls=calls, metadata=[])
    embeddings, scores = answers["answers"]
    embedding_server.check(embeddings, embedding_server.embed())
    embedding_server.check(scores, [embedding_server.ask(RANKING, pair) for pair in PAIRS])


@every_mode_of_the_hubs_client
def test_hugging_faces_client_gets_the_answers_to_plain_requests(
    group_server: Server, mode: str
) -> None:
    url = f"{group_server.inference_url}/predictions"
    calls = [call for call in CALLS if call.mode == mode]
    found = run_client("hugging_face_tasks_client", calls=[call.job(url) for call in calls])
    for name in ("answers", "asynchronous"):
        for call, answer in zip(calls, found[name], strict=True):
            call.check(url, answer, 1e-3)


def tensors(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return a tensor for each column of rows."""
    return [
        {
            "name": name,
            "shape": [len(rows)],
            "datatype": "BYTES",
            "data": [row[name] for row in rows],
        }
        for name in rows[0]
    ]


@contextmanager
def tritons_address(server: Server, transport: str) -> Iterator[str]:
    """Yield the address for one of the clients: the server's own, or that of a gateway."""
    if transport == "http":
        yield server.inference_url.removeprefix("http://")
        return
    with gateway_to(server.inference_url) as address:
        yield address


@every_mode
def test_its_sample_is_answered(group_server: Server, mode: str) -> None:
    test_predictions.test_the_sample_of_each_mode_is_answered_with_json(group_server, mode)


@every_mode
def test_answers_are_those_of_its_document(group_server: Server, mode: str) -> None:
    test_openapi.test_every_example_is_answered(group_server, mode)
    test_openapi.test_answers_with_parameters_fit_the_document(group_server, mode)


@every_mode
def test_mistakes_are_answered_as_its_document_says(group_server: Server, mode: str) -> None:
    test_openapi.test_a_mistake_in_a_list_is_reported_in_its_place(group_server, mode)
    test_openapi.test_too_many_items_get_a_documented_error(group_server, mode)
    test_openapi.test_what_is_wrong_in_an_example_is_refused_by_its_schema_and_by_the_server(
        group_server, mode
    )
    test_openapi.test_a_wrong_body_gets_a_documented_error(group_server, mode)
    test_malformed.test_a_malformed_request_is_refused_and_affects_no_other(group_server, mode, 50)


@every_mode
def test_its_description_fits_its_answers(group_server: Server, mode: str) -> None:
    test_describe.test_the_sample_and_every_default_get_an_answer_that_fits_the_schema(
        group_server, lambda name: test_describe.described_by(group_server, name), mode
    )


@every_explained_mode
def test_its_sample_is_explained(group_server: Server, mode: str) -> None:
    test_explanations.test_each_mode_explains_its_sample_as_json_and_as_a_page(group_server, mode)
