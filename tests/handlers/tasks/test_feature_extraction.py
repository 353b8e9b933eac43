"""Vectors of tokens: which end of a text is cut, and results that no response can have."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from tests.serving import Served, differences, read_json

Load = Callable[..., Served]
TEXT = "Nina sings. " * 40


def test_vectors_that_no_response_can_have_are_not_computed(served: Load) -> None:
    model = served("feature_extraction", max_rows=16)
    size = len(model.ask("Ada.")[0]) * 32 * 4
    dispatcher = Dispatcher(model.engine, limits=BodyLimits(max_response_bytes=20 * size))
    meter = Meter()
    bodies = [HttpRequest({"body": {"inputs": each}}, {}) for each in ([TEXT] * 8, "Ada.")]
    refused, fine = dispatcher.dispatch(bodies, meter)
    assert (refused.status, fine.status) == (413, 200)
    assert "numbers, too many for the server's max_response_size" in str(read_json(refused.body))
    assert meter.counts["rows"] == 1


@pytest.mark.parametrize("mode", ["feature_extraction", "sparse_embedding"])
def test_a_text_is_cut_at_the_end_that_the_request_names(served: Load, mode: str) -> None:
    model = served(mode, max_length=6)
    first, last = "Nina sings in Paris.", "Tom lives in London."
    left, right = (
        model.ask(f"{first} {last}", truncation_direction=side) for side in ("Left", "right")
    )
    assert not differences(right, model.ask(first), 1e-5)
    assert not differences(left, model.ask(last, truncation_direction="left"), 1e-5)
    assert differences(left, right, 1e-3)
    assert not differences(model.ask(f"{first} {last}"), right, 1e-5)
