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
MODES = ("sentence_embedding", "sentence_ranking")
TEXTS = ["Nina sings in the bar.", "A dull film."]
QUERY = "Who sings?"
DOCUMENTS = ["It rains today.", "Nina sings in the bar.", "A dull film."]


@pytest.fixture(scope="module")
def models(served: Callable[..., Served]) -> dict[str, Served]:
    return {mode: served(mode) for mode in MODES}


@pytest.fixture(scope="module")
def url(models: dict[str, Served]) -> Iterator[str]:
    with front(models) as url:
        yield url


def ranking(models: dict[str, Served]) -> list[dict[str, Any]]:
    """Return the two best documents."""
    inputs = {"query": QUERY, "documents": DOCUMENTS}
    return list(models["sentence_ranking"].ask(inputs, top_n=2, return_documents=True))


def test_rankings_of_coheres_clients(url: str, models: dict[str, Served]) -> None:
    ranked = ranking(models)
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


class TestEmbeddings:
    @pytest.fixture(scope="class")
    def model(self, models: dict[str, Served]) -> Served:
        return models["sentence_embedding"]

    @pytest.fixture(scope="class")
    def ids(self, model: Served) -> Any:
        return [model.engine.task.tokenizer(text)["input_ids"] for text in TEXTS]

    @pytest.fixture(scope="class")
    def found(self, url: str, ids: Any) -> Any:
        """The answers to OpenAI's, Hugging Face's and Triton's clients."""
        job = {
            "url": f"{url}/sentence_embedding",
            "model_name": "model",
            "texts": TEXTS,
            "ids": ids,
        }
        return run_client("embedding_client", **job)

    def test_of_openais_client(self, model: Served, found: Any, ids: Any) -> None:
        expected = [model.ask(text) for text in TEXTS]
        assert not differences(found["openai"], expected, TOLERANCE)
        assert not differences(found["ids"], expected, TOLERANCE)
        assert not differences(found["base64"], expected[0], TOLERANCE)
        few = [model.ask(text, dimensions=4) for text in TEXTS]
        assert not differences(found["dimensions"], few, TOLERANCE)
        tokens = sum(map(len, ids))
        assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}

    def test_openais_client_shows_which_text_is_wrong(self, found: Any) -> None:
        assert found["mistake"]["status"] == 400
        assert found["mistake"]["body"]["message"] == "input[2]: inputs is empty; send a text."

    def test_of_hugging_faces_client(self, model: Served, found: Any) -> None:
        assert not differences(
            found["hugging_face"], model.ask(TEXTS[0], normalize=True), TOLERANCE
        )

    def test_of_tritons_client(self, model: Served, found: Any) -> None:
        assert not differences(found["triton"], [model.ask(text) for text in TEXTS], TOLERANCE)

    def test_of_coheres_clients(self, url: str, model: Served, ids: Any) -> None:
        base_url = f"{url}/sentence_embedding/1.0"
        found = run_client("cohere_client", base_url=base_url, texts=TEXTS)
        expected = [model.ask(text) for text in TEXTS]
        assert not differences(found["first"], expected, TOLERANCE)
        assert not differences(found["by_type"]["float"], expected, TOLERANCE)
        for kind in ("int8", "ubinary"):
            assert found["by_type"][kind] == [model.ask(text, precision=kind) for text in TEXTS]
        assert all(isinstance(each, str) for each in found["by_type"]["base64"])
        assert found["tokens"] == sum(map(len, ids))
        assert found["mistake"]["message"] == "texts[2]: inputs is empty; send a text."


@pytest.mark.parametrize("framework", ["langchain", "llama_index"])
def test_classes_of_frameworks(url: str, models: dict[str, Served], framework: str) -> None:
    embed = {"url": f"{url}/sentence_embedding", "texts": TEXTS}
    rerank = {"url": f"{url}/sentence_ranking", "query": QUERY, "documents": DOCUMENTS}
    job = {"embed": embed, "rerank": rerank}
    found = run_program(FRAMEWORKS, f"{framework}_client", job)
    model = models["sentence_embedding"]
    plain = [model.ask(text) for text in TEXTS]
    unit = [model.ask(text, normalize=True) for text in TEXTS]
    # TEI's default, and what the program asks of LangChain's class for Hugging Face.
    normalizes = ("tei", "hugging_face") if framework == "langchain" else ("tei",)
    for name, (documents, query) in found["embeddings"].items():
        expected = unit if name in normalizes else plain
        assert not differences([documents, query], [expected, expected[0]], TOLERANCE), name
    ranked = [[each["text"], each["score"]] for each in ranking(models)]
    for name, texts in found["rankings"].items():
        assert not differences(texts, ranked, TOLERANCE), name
