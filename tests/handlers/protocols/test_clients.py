"""Unmodified clients of other servers with the modes for texts that `tests/e2e` does not serve.

Each program of `tests/clients/` runs in its own environment. Its answers are those to a plain
request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.clients import FRAMEWORKS, run_client, run_program
from tests.http_front import front
from tests.serving import Served, differences

TOLERANCE = 1e-5
MODES = ("sentence_ranking",)
QUERY = "Who sings?"
DOCUMENTS = ["It rains today.", "Nina sings in the bar.", "A dull film."]


@pytest.fixture(scope="module")
def models(served: Callable[..., Served]) -> dict[str, Served]:
    return {mode: served(mode) for mode in MODES}


@pytest.fixture(scope="module")
def url(models: dict[str, Served]) -> Iterator[str]:
    with front(models) as url:
        yield url


class TestRankings:
    @pytest.fixture(scope="class")
    def ranked(self, models: dict[str, Served]) -> list[dict[str, Any]]:
        """The two best documents."""
        ranker = models["sentence_ranking"]
        inputs = {"query": QUERY, "documents": DOCUMENTS}
        return list(ranker.ask(inputs, top_n=2, return_documents=True))

    def test_of_coheres_clients(self, url: str, ranked: Any) -> None:
        found = run_client(
            "cohere_client",
            base_url=f"{url}/sentence_ranking/1.0",
            query=QUERY,
            documents=DOCUMENTS,
        )
        expected = [[each["index"], each["score"]] for each in ranked]
        assert not differences(found["first"], expected, TOLERANCE)
        assert not differences(found["second"], expected, TOLERANCE)
        assert found["documents"] == [each["text"] for each in ranked]
        assert found["mistake"] == {
            "status": 400,
            "message": "documents[0] is empty; send a text.",
        }

    @pytest.mark.parametrize("framework", ["langchain", "llama_index"])
    def test_of_frameworks(self, url: str, ranked: Any, framework: str) -> None:
        job = {"url": f"{url}/sentence_ranking", "query": QUERY, "documents": DOCUMENTS}
        found = run_program(FRAMEWORKS, f"{framework}_client", job)
        expected = [[each["text"], each["score"]] for each in ranked]
        for name, texts in found.items():
            assert not differences(texts, expected, TOLERANCE), name
