"""Unmodified clients of other servers with models of embeddings and rankings in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.embedding_clients import (
    CHECKS,
    EMBEDDING,
    RANKING,
    EmbeddingServer,
    haystack_embeds_and_ranks,
    langchain_embeds_and_ranks,
    litellm_embeds_and_ranks,
    llama_index_embeds_and_ranks,
)
from tests.http_front import front
from tests.serving import Served

pytestmark = pytest.mark.server

# Their imports take seconds, and they send what OpenAI's, Cohere's and Hugging Face's clients do.
FRAMEWORKS = (
    haystack_embeds_and_ranks,
    langchain_embeds_and_ranks,
    litellm_embeds_and_ranks,
    llama_index_embeds_and_ranks,
)


@pytest.fixture(scope="module")
def server(served: Callable[..., Served]) -> Iterator[EmbeddingServer]:
    with front({mode: served(mode) for mode in (EMBEDDING, RANKING)}) as url:
        yield EmbeddingServer(url, tolerance=1e-5)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(
            check, id=check.__name__, marks=pytest.mark.nightly if check in FRAMEWORKS else ()
        )
        for check in CHECKS
    ],
)
def test_a_client_gets_the_answers_to_plain_requests(
    server: EmbeddingServer, check: Callable[[EmbeddingServer], None]
) -> None:
    check(server)
