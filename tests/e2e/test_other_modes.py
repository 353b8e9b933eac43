"""The modes that `make demo` leaves out, each with its demo model, several on one server.

They are held to what the other tests claim for the default modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handlers.config.choices import modes
from handlers.explainers import targets
from scripts.kit.server import Server
from scripts.kit.torchserve import TorchServe
from tests.e2e import (
    test_describe,
    test_explanations,
    test_malformed,
    test_openapi,
    test_predictions,
)
from tests.e2e.served import served_modes

pytestmark = pytest.mark.slow

# A worker takes about 500 MB.
AT_ONCE = 6
OTHERS = [mode for mode in modes() if mode not in served_modes()]
GROUPS = [tuple(OTHERS[start : start + AT_ONCE]) for start in range(0, len(OTHERS), AT_ONCE)]


def each(wanted: Callable[[str], object]) -> pytest.MarkDecorator:
    """Return the mark that gives a test each of some modes and a server that has it."""
    pairs = [pytest.param(group, mode, id=mode) for group in GROUPS for mode in group]
    found = [pair for pair in pairs if wanted(str(pair.values[1]))]
    return pytest.mark.parametrize(("others", "mode"), found, indirect=["others"], scope="module")


every_mode = each(lambda mode: True)
every_explained_mode = each(targets.get)


@pytest.fixture(scope="module")
def others(
    request: pytest.FixtureRequest,
    pack_demo: Callable[[str, Path], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    store = tmp_path_factory.mktemp("others")
    for mode in request.param:
        pack_demo(mode, store)
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(model_store=store, workdir=workdir, timeout=480) as server:
        yield server


@every_mode
def test_its_sample_is_answered(others: Server, mode: str) -> None:
    test_predictions.test_the_sample_of_each_mode_is_answered_with_json(others, mode)


@every_mode
def test_answers_are_those_of_its_document(others: Server, mode: str) -> None:
    test_openapi.test_every_example_is_answered(others, mode)
    test_openapi.test_answers_with_parameters_fit_the_document(others, mode)


@every_mode
def test_mistakes_are_answered_as_its_document_says(others: Server, mode: str) -> None:
    test_openapi.test_a_mistake_in_a_list_is_reported_in_its_place(others, mode)
    test_openapi.test_too_many_items_get_a_documented_error(others, mode)
    test_malformed.test_a_malformed_request_is_refused_and_affects_no_other(others, mode, 50)


@every_mode
def test_its_description_fits_its_answers(others: Server, mode: str) -> None:
    test_describe.test_the_sample_and_every_default_get_an_answer_that_fits_the_schema(
        others, lambda name: test_describe.described_by(others, name), mode
    )


@every_explained_mode
def test_its_sample_is_explained(others: Server, mode: str) -> None:
    test_explanations.test_each_mode_explains_its_sample_as_json_and_as_a_page(others, mode)
