"""The Open Inference Protocol as in its specification; tests/e2e has tests with its clients."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.errors import RequestTooLarge
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols.open_inference.tensors import InferenceRequest, read_tensors
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.parameters import MAX_VALUES
from tests.handlers.generation.test_chat import CHAT, TEMPLATE
from tests.modes import cases, each_mode
from tests.samples import explained_modes
from tests.sentences import Sentence, refused
from tests.serving import Served, read_json

Serve = Callable[..., Served]
LENGTH = "Inference-Header-Content-Length"
HEADERS = {"Host": "localhost", "Content-Type": "application/json", "explain": "False"}
BY_GRPC = {"body": {"content-type": "application/json"}}
INFER = "v2/models/model/infer"
FEW = {"max_new_tokens": 4}
TEXTS = ["Ada sings in Paris", "Nina was born there"]
TaskInputs = tuple[list[Any], dict[str, list[Any]], dict[str, Any]]


def inputs_of(mode: str) -> TaskInputs:
    """Return a mode's inputs, the same as tensors, and parameters."""
    inputs = [cases(mode).with_text(text) for text in TEXTS]
    parameters = dict(cases(mode).brief)
    if not isinstance(inputs[0], dict):
        return inputs, {cases(mode).tensor: inputs}, parameters
    return inputs, {name: [each[name] for each in inputs] for name in inputs[0]}, parameters


@pytest.fixture
def model(served: Serve) -> Served:
    return served("sequence_classification")


def tensor(name: str, data: list[Any], datatype: str = "BYTES", **rest: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [len(data)], "data": data, **rest}


def typed(name: str, data: list[Any], content_type: str) -> dict[str, Any]:
    return tensor(name, data, parameters={"content_type": content_type})


def call(model: Served, body: Any, path: str = "", **headers: Any) -> HttpResponse:
    http_request = HttpRequest({"body": body}, {**HEADERS, "url_path": path, **headers})
    (answer,) = model.dispatcher.dispatch([http_request], Meter())
    return answer


def results(answer: HttpResponse) -> list[Any]:
    """Return the results of the rows of an answer in JSON."""
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.body
    (output,) = read_json(answer.body)["outputs"]
    assert (output["name"], output["datatype"]) == ("output", "BYTES")
    assert output["shape"] == [len(output["data"]), 1]
    return [json.loads(each) for each in output["data"]]


def ask(model: Served, *inputs: Any, **rest: Any) -> list[Any]:
    return results(call(model, {"inputs": list(inputs), **rest}))


def refusal(answer: HttpResponse) -> tuple[int, str]:
    body = read_json(answer.body)
    assert body.keys() == {"error"}
    return answer.status, body["error"]


def in_bytes(body: dict[str, Any], *blobs: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a body with its first tensors as bytes after the JSON, and its headers."""
    for given, blob in zip(body["inputs"], blobs, strict=False):
        given.pop("data", None)
        given.setdefault("parameters", {})["binary_data_size"] = len(blob)
    head = json.dumps(body).encode()
    headers = {LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
    return head + b"".join(blobs), headers


def packed(*texts: str) -> bytes:
    return b"".join(struct.pack("<I", len(each)) + each for each in map(str.encode, texts))


@pytest.mark.parametrize("mode", each_mode())
class TestEveryMode:
    def test_answers_as_the_hugging_face_protocol_does(self, served: Serve, mode: str) -> None:
        inputs, tensors, parameters = inputs_of(mode)
        expected = served(mode).ask(inputs, **parameters)
        given = [tensor(name, data) for name, data in tensors.items()]
        assert ask(served(mode), *given, parameters=parameters) == expected
        first = [tensor(name, data[:1]) for name, data in tensors.items()]
        alone = served(mode).ask(inputs[:1], **parameters)
        assert ask(served(mode), *first, parameters=parameters) == alone

    def test_answers_items_that_are_json(self, served: Serve, mode: str) -> None:
        inputs, _, parameters = inputs_of(mode)
        items = [json.dumps({"inputs": item, "parameters": parameters}) for item in inputs]
        found = ask(served(mode), typed("array_inputs", items, "hg_jsonlist"))
        assert found == served(mode).ask(inputs, **parameters)

    def test_answers_as_its_metadata_describes(self, served: Serve, mode: str) -> None:
        metadata = read_json(call(served(mode), b"", "v2/models/model").body)
        row = cases(mode).table[0]
        columns = (
            row
            if isinstance(row, dict)
            else {tasks.get(mode).description.wire.input_columns[0][0]: row}
        )
        given = [
            tensor(each["name"], [columns[each["name"]]], each["datatype"])
            for each in metadata["inputs"]
        ]
        answer = call(served(mode), {"inputs": given}, INFER)
        (output,) = read_json(answer.body)["outputs"]
        assert {key: output[key] for key in ("name", "datatype")} == {
            key: metadata["outputs"][0][key] for key in ("name", "datatype")
        }


@pytest.mark.parametrize("mode", each_mode(explained_modes()))
def test_each_mode_is_explained(served: Serve, mode: str) -> None:
    inputs, tensors, _ = inputs_of(mode)
    parameters = {
        "method": "input_x_gradient",
        **(FEW if tasks.get(mode).description.generation.texts else {}),
    }
    body = {"inputs": inputs, "parameters": parameters}
    own = call(served(mode), body, explain="True")
    given = [tensor(name, data) for name, data in tensors.items()]
    for path, explain in (("", "True"), ("v2/models/model/explain", "False")):
        http_request = {"inputs": given, "parameters": parameters}
        answer = call(served(mode), http_request, path, explain=explain)
        assert results(answer) == read_json(own.body)


def test_pairs_are_two_tensors(model: Served) -> None:
    found = ask(model, tensor("text", TEXTS), tensor("text_pair", TEXTS[::-1]))
    pairs = zip(TEXTS, TEXTS[::-1], strict=True)
    assert found == model.ask([{"text": one, "text_pair": other} for one, other in pairs])


def test_all_columns_of_the_inputs_are_read_where_some_would_do(served: Serve) -> None:
    model = served("document_question_answering")
    page = tasks.get("document_question_answering").description.wire.example["inputs"]
    boxes = typed("word_boxes", [json.dumps(page["word_boxes"])], "hg_json")
    others = [tensor(name, [page[name]]) for name in ("image", "question")]
    assert ask(model, *others, boxes) == model.ask([page])


def test_a_chat_is_an_item_of_json(served: Serve, monkeypatch: Any) -> None:
    model = served("text_generation")
    monkeypatch.setattr(model.engine.task.checkpoint.tokenizer, "chat_template", TEMPLATE)
    given = typed("inputs", [json.dumps(CHAT)], "hg_json")
    assert ask(model, given, parameters=FEW) == [model.ask(CHAT, **FEW)]


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([2], TEXTS),
        ([2, 1], [[text] for text in TEXTS]),
        ([1, 2], [TEXTS]),
        ([2, 1], TEXTS),
        ([1, 1, 1, 2], [[[TEXTS]]]),
    ],
)
def test_rows_have_any_shape_with_one_element_for_each_row(
    model: Served, shape: list[int], data: list[Any]
) -> None:
    assert ask(model, {**tensor("args", data), "shape": shape}) == model.ask(TEXTS)


def test_one_text_may_have_no_dimension(model: Served) -> None:
    assert ask(model, {**tensor("args", TEXTS[:1]), "shape": []}) == model.ask(TEXTS[:1])


@pytest.mark.parametrize("where", ["inputs", "body"])
def test_texts_can_come_in_base64(model: Served, where: str) -> None:
    coded = [base64.b64encode(text.encode()).decode() for text in TEXTS]
    own = {"parameters": {"content_type": "base64"}}
    given = {**tensor("args", coded), **(own if where == "inputs" else {})}
    assert ask(model, given, **(own if where == "body" else {})) == model.ask(TEXTS)


class TestParameters:
    def test_apply_to_every_row(self, model: Served) -> None:
        expected = model.ask(TEXTS, top_k=2)
        text = tensor("args", TEXTS)
        assert ask(model, text, parameters={"top_k": 2, "binary_data_output": False}) == expected
        assert ask(model, text, tensor("top_k", [2], "INT64")) == expected
        assert ask(model, typed("top_k", ["2"], "hg_json"), text) == expected

    def test_apply_to_one_row_each_if_there_are_as_many(self, model: Served) -> None:
        given = [tensor("args", TEXTS), tensor("top_k", [1, 2], "INT32")]
        expected = [model.ask(TEXTS, top_k=each)[at] for at, each in enumerate((1, 2))]
        assert ask(model, *given) == expected
        assert ask(model, *given, parameters={"top_k": 3}) == expected

    def test_of_an_item_override_those_of_the_body(self, model: Served) -> None:
        items = [json.dumps({"inputs": TEXTS[0], "parameters": {"top_k": 2}}), json.dumps(TEXTS[1])]
        found = ask(model, typed("args", items, "hg_json"), parameters={"top_k": 1})
        assert found == [model.ask(TEXTS, top_k=2)[0], model.ask(TEXTS, top_k=1)[1]]

    def test_that_are_lists_take_all_elements(self, served: Serve) -> None:
        model = served("token_classification")
        expected = model.ask(TEXTS, ignore_labels=["O", "I-PER"])
        text = tensor("args", TEXTS)
        assert ask(model, text, tensor("ignore_labels", ["O", "I-PER"])) == expected
        assert ask(model, text, typed("ignore_labels", ['["O", "I-PER"]'], "hg_json")) == expected

    def test_can_have_any_datatype(self, served: Serve) -> None:
        model = served("text_generation")
        expected_parameters = {"do_sample": True, "temperature": 0.5, "seed": 7, "stop": "e", **FEW}
        given = [
            tensor("do_sample", [True], "BOOL"),
            tensor("temperature", [0.5], "FP32"),
            tensor("seed", [7], "UINT64"),
            tensor("stop", ["e"]),
        ]
        assert ask(model, tensor("args", TEXTS), *given, parameters=FEW) == model.ask(
            TEXTS, **expected_parameters
        )

    def test_that_may_be_lists_are_lists_unless_there_is_one_for_each_row(
        self, served: Serve
    ) -> None:
        model = served("text_generation")
        texts, stops = tensor("args", TEXTS), ["e", "a", "i"]
        shared = ask(model, texts, tensor("stop", stops), parameters=FEW)
        assert shared == model.ask(TEXTS, stop=stops, **FEW)
        each = ask(model, texts, tensor("stop", stops[:2]), parameters=FEW)
        assert each == [
            model.ask(text, stop=stop, **FEW) for text, stop in zip(TEXTS, stops, strict=False)
        ]

    def test_of_triton_alone_are_ignored(self, model: Served) -> None:
        text = tensor("args", TEXTS)
        parameters = {"triton_enable_empty_final_response": True}
        assert ask(model, text, parameters=parameters) == ask(model, text)


def test_a_bad_row_affects_no_other_row(model: Served) -> None:
    items = ['"A film"', "{", '""', '{"inputs": "A song", "parameters": {"top_k": 0}}', '"A song"']
    first, broken, empty, wrong, last = ask(model, typed("args", items, "hg_json"))
    assert [first, last] == model.ask(["A film", "A song"])
    assert [each["code"] for each in (broken, empty, wrong)] == [400] * 3
    assert broken["message"].startswith("args is not JSON")


def test_the_first_error_is_returned_if_every_row_is_bad(model: Served) -> None:
    answer = call(model, {"inputs": [tensor("args", ["", " "])]})
    assert refusal(answer) == (400, Sentence("inputs"))


def test_an_answer_names_its_model_and_the_id_of_the_request(model: Served) -> None:
    given = {"inputs": [tensor("args", TEXTS)]}
    answer = read_json(call(model, {"id": "seven", **given}).body)
    names = {key: answer[key] for key in ("id", "model_name", "model_version")}
    assert names == {"id": "seven", "model_name": "model", "model_version": "1.0"}
    assert "id" not in read_json(call(model, given).body)


class TestBytes:
    def test_are_read(self, model: Served) -> None:
        body = {"inputs": [tensor("args", TEXTS), tensor("top_k", [1, 2], "INT16")]}
        expected = ask(model, *body["inputs"])
        raw, headers = in_bytes(body, packed(*TEXTS), struct.pack("<2h", 1, 2))
        assert results(call(model, raw, **headers)) == expected
        assert results(call(model, raw, INFER, **headers)) == expected

    def test_and_json_can_be_mixed(self, model: Served) -> None:
        body = {"inputs": [tensor("args", ["Zoë"]), tensor("top_k", [2], "INT64")]}
        raw, headers = in_bytes(body, packed("Zoë"))
        assert results(call(model, raw, **headers)) == [model.ask("Zoë", top_k=2)]

    @pytest.mark.parametrize(
        "output_options",
        [
            {"parameters": {"binary_data_output": True}},
            {"outputs": [{"name": "output", "parameters": {"binary_data": True}}]},
        ],
    )
    def test_are_written_if_requested(self, model: Served, output_options: Any) -> None:
        answer = call(model, {"inputs": [tensor("args", TEXTS)], **output_options})
        assert (answer.status, answer.content_type) == (200, "application/octet-stream")
        size = int(answer.headers[LENGTH])
        (output,) = json.loads(answer.body[:size])["outputs"]
        blob = answer.body[size:]
        assert output["parameters"]["binary_data_size"] == len(blob) and "data" not in output
        texts = [json.dumps(each, separators=(",", ":")) for each in model.ask(TEXTS)]
        assert blob == packed(*texts)

    def test_are_not_written_if_an_output_declines_them(self, model: Served) -> None:
        outputs = [{"name": "output", "parameters": {"binary_data": False}}]
        usual = {"binary_data_output": True}
        assert ask(model, tensor("args", TEXTS), outputs=outputs, parameters=usual)

    @pytest.mark.parametrize(
        ("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
    )
    def test_can_be_compressed(self, model: Served, coding: str, pack: Any) -> None:
        raw, headers = in_bytes({"inputs": [tensor("args", TEXTS)]}, packed(*TEXTS))
        answer = call(model, pack(raw), **headers, **{"Content-Encoding": coding})
        assert results(answer) == model.ask(TEXTS)

    def test_of_one_row_that_are_no_text_affect_no_other_row(self, model: Served) -> None:
        raw, headers = in_bytes(
            {"inputs": [tensor("args", TEXTS)]}, packed("A film") + b"\x01\0\0\0\xff"
        )
        film, broken = results(call(model, raw, **headers))
        assert film == model.ask(["A film"])[0]
        assert broken["message"] == Sentence("args", "UTF-8", "0xff", "0")

    @pytest.mark.parametrize(
        ("data", "datatype", "blob", "more", "facts"),
        [
            (TEXTS, "BYTES", b"\x09\0\0\0A", b"", ["args", "5"]),
            (TEXTS, "BYTES", b"\x01\0", b"", ["args", "2"]),
            (TEXTS, "BYTES", packed("A"), b"", ["args", "[2]", "2"]),
            (TEXTS, "BYTES", packed(*TEXTS), b"more", ["4"]),
            ([1], "INT32", b"\0" * 6, b"", ["args", "6", "INT32"]),
        ],
    )
    def test_of_an_inconsistent_length_are_refused(
        self, model: Served, data: Any, datatype: str, blob: bytes, more: bytes, facts: list[str]
    ) -> None:
        raw, headers = in_bytes({"inputs": [tensor("args", data, datatype)]}, blob)
        status, error = refusal(call(model, raw + more, **headers))
        assert (status, error) == (400, Sentence(*facts))

    @pytest.mark.parametrize("length", ["9999", "-1", "x"])
    def test_after_a_wrong_header_length_are_refused(self, model: Served, length: str) -> None:
        status, error = refusal(call(model, b"{}", **{LENGTH: length, "Content-Type": ""}))
        assert (status, error) == (400, Sentence(LENGTH, length, "2"))

    @pytest.mark.parametrize("size", [7, -1, "5", True])
    def test_of_a_wrong_size_are_refused(self, model: Served, size: Any) -> None:
        given = tensor("args", ["A"], parameters={"binary_data_size": size})
        del given["data"]
        raw, headers = in_bytes({"inputs": [given]})
        status, error = refusal(call(model, raw, **headers))
        assert (status, error) == (
            400,
            f"args has binary_data_size {size!r}, and 0 bytes are left.",
        )


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("v2/health/live", {"live": True}),
        ("v2/health/ready", {"ready": True}),
        ("v2/models", {"models": ["model"]}),
        ("v2/models/model/ready", {"name": "model", "ready": True}),
        ("v2/models/model/versions/1.0/ready", {"name": "model", "ready": True}),
        # Triton's versions are whole numbers.
        ("v2/models/model/versions/1/ready", {"name": "model", "ready": True}),
    ],
)
def test_get_requests_are_answered(model: Served, path: str, answer: Any) -> None:
    assert read_json(call(model, b"", path).body) == answer


def test_the_server_and_the_model_are_described(model: Served) -> None:
    server = read_json(call(model, b"", "v2").body)
    assert (server["name"], server["extensions"]) == ("torchserve", ["binary_tensor_data"])
    metadata = read_json(call(model, b"", "v2/models/model/versions/1.0").body)
    assert metadata == {
        "name": "model",
        "versions": ["1.0"],
        "platform": "transformers_pretrained",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "output", "datatype": "BYTES", "shape": [-1, 1]}],
    }


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        ("v2/models/model/config", ["v2/models/model/config", "v2"]),
        ("v2/repository/index", ["v2/repository/index", "v2"]),
        ("v2/models/other/infer", ["there"]),
        ("v2/models/model/versions/2/infer", ["2"]),
    ],
)
def test_an_unknown_path_is_not_found(model: Served, path: str, facts: list[str]) -> None:
    status, error = refusal(call(model, b"", path))
    assert (status, error) == (404, Sentence(*facts))


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        (b"", 400, ["body"]),
        (b"{", 400, ["body"]),
        ([], 400, ["body"]),
        ({}, 400, ["inputs"]),
        ({"inputs": []}, 400, ["inputs"]),
        ({"inputs": [tensor("args", [])]}, 400, ["inputs"]),
        ({"inputs": [tensor("args", ["A"] * 129)]}, 413, ["inputs", "129"]),
        ({"inputs": [tensor("args", ["A"])], "output": []}, 400, ["output"]),
        (
            {"inputs": [tensor("args", ["A"], contents=None)]},
            400,
            ["inputs.0.contents"],
        ),
        (
            {"inputs": [tensor("args", ["A"])], "outputs": [{"name": "output", "shap": [1]}]},
            400,
            ["outputs.0.shap"],
        ),
        ({"inputs": [{"name": "a", "shape": [1]}]}, 400, ["inputs.0.datatype"]),
        ({"inputs": [tensor("args", ["A"], "STRING")]}, 400, ["STRING", "inputs.0.datatype"]),
        ({"inputs": [{**tensor("a", ["A"]), "shape": [-1]}]}, 400, ["inputs.0.shape.0", "1"]),
        ({"inputs": [{**tensor("a", ["A"]), "data": None}]}, 400, ["a"]),
        ({"inputs": [{**tensor("a", TEXTS), "shape": [3]}]}, 400, ["a", "[3]", "3"]),
        (
            {"inputs": [{**tensor("a", TEXTS * 2), "shape": [2, 2]}]},
            400,
            ["a", "[2", "2]"],
        ),
        ({"inputs": [tensor("a", ["A", 1])]}, 400, ["a", "BYTES", "1"]),
        ({"inputs": [tensor("a", [1.5])]}, 400, ["a", "BYTES", "0"]),
        ({"inputs": [tensor("a", [1], "INT64")]}, 400, ["a", "INT64"]),
        ({"inputs": [typed("a", ["%"], "base64")]}, 400, ["a", "base64"]),
        ({"inputs": [tensor("a", ["A"]), tensor("a", ["B"])]}, 400, ["inputs"]),
        (
            {"inputs": [tensor("args", ["A"]), tensor("topp_k", [1], "INT8")]},
            400,
            ["top_k", "inputs", "topp_k"],
        ),
        (
            {"inputs": [tensor("a", ["A"]), tensor("b", ["B"])]},
            400,
            ["inputs"],
        ),
        ({"inputs": [tensor("top_k", [1], "INT8")]}, 400, ["inputs", "top_k"]),
        (
            {"inputs": [tensor("text", TEXTS), tensor("text_pair", ["A"])]},
            400,
            ["text_pair", "1", "2"],
        ),
        (
            {"inputs": [tensor("text", TEXTS), tensor("top_k", [1, 2, 3], "INT8")]},
            400,
            ["top_k", "3", "2"],
        ),
        (
            {"inputs": [tensor("args", ["A"])], "parameters": {"topk": 1}},
            400,
            ["top_k"],
        ),
        (
            {"inputs": [tensor("args", ["A"])], "outputs": [{"name": "label"}]},
            400,
            ["label"],
        ),
        (
            {
                "inputs": [tensor("args", ["A"])],
                "outputs": [{"name": "output", "parameters": {"classification": 2}}],
            },
            422,
            ["output"],
        ),
    ],
)
def test_an_invalid_body_is_refused(
    model: Served, body: Any, status: int, facts: list[str]
) -> None:
    found, error = refusal(call(model, body, INFER))
    assert (found, error) == (status, Sentence(*facts))


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [1]),
        ("INT8", [128]),
        ("UINT8", [-1]),
        ("INT32", [1.5]),
        ("INT64", ["1"]),
        ("INT64", [True]),
        ("FP32", [None]),
        ("FP16", [70000.0]),
    ],
)
def test_elements_of_another_datatype_are_refused(model: Served, datatype: str, data: Any) -> None:
    given = [tensor("args", ["A"]), tensor("top_k", data, datatype)]
    _, error = refusal(call(model, {"inputs": given}))
    assert error == Sentence(datatype, "top_k", "0")


@pytest.mark.parametrize("name", ["top_k", "topk"])
def test_a_parameter_may_be_a_tensor_under_its_old_name(served: Serve, name: str) -> None:
    question = [tensor("question", ["Who?"]), tensor("context", ["Ada sings."])]
    body = {"inputs": [*question, tensor(name, [2], "INT32")]}
    (found,) = results(call(served("question_answering"), body))
    assert len(found) == 2


def test_a_question_without_its_context_is_refused(served: Serve) -> None:
    answer = call(served("question_answering"), {"inputs": [tensor("question", ["Who?"])]})
    sentence = "inputs has the tensors question; ask with question and context."
    assert refusal(answer) == (400, sentence)


@pytest.mark.parametrize("inputs", [["a"], [{"text": "a"}], "a", [[1]], None])
def test_inputs_of_other_protocols_are_not_read_as_tensors(model: Served, inputs: Any) -> None:
    answer = read_json(call(model, {"inputs": inputs}).body)
    assert "outputs" not in answer
    # An error of this protocol has no other key.
    assert isinstance(answer, list) or answer.keys() != {"error"}


class TestTorchServesGrpc:
    """Its rows have no headers, BYTES in base64, and every answer must have one shape."""

    @pytest.fixture(autouse=True, params=["decoded", "as bytes"])
    def decoded(self, request: pytest.FixtureRequest) -> None:
        """Test both values of decode_input_request in config.properties."""
        self.is_decoded = request.param == "decoded"

    def ask(self, model: Served, *inputs: Any) -> Any:
        coded = [
            {**each, "data": [base64.b64encode(text.encode()).decode() for text in each["data"]]}
            if each["datatype"] == "BYTES"
            else each
            for each in inputs
        ]
        given = {"id": "", "model_name": "model", "inputs": coded}
        body = given if self.is_decoded else json.dumps(given).encode()
        (answer,) = model.dispatcher.dispatch([HttpRequest({"body": body}, BY_GRPC)], Meter())
        body = read_json(answer.body)
        assert (body["id"], body["model_name"], body["model_version"]) == ("", "model", "1.0")
        (output,) = body["outputs"]
        assert (output["datatype"], output["shape"]) == ("BYTES", [len(output["data"]), 1])
        return output["name"], output["data"]

    def test_gets_results_as_elements(self, model: Served) -> None:
        found = self.ask(model, tensor("args", TEXTS), tensor("top_k", [2], "INT64"))
        assert found == ("output", model.ask(TEXTS, top_k=2))

    def test_gets_the_error_of_a_row_in_its_place(self, model: Served) -> None:
        name, (film, broken) = self.ask(model, tensor("args", ["A film", ""]))
        assert (name, film) == ("output", model.ask(["A film"])[0])
        assert broken["code"] == 400

    @pytest.mark.parametrize("inputs", [[], [tensor("args", [""])], [tensor("args", [], "FP32")]])
    def test_gets_an_error_as_an_answer(self, model: Served, inputs: Any) -> None:
        name, (error,) = self.ask(model, *inputs)
        assert name == "error"
        assert error.keys() == {"code", "type", "message"}


def test_a_tensor_has_at_most_the_elements_of_a_list_of_parameters() -> None:
    def read(count: int) -> int:
        body = InferenceRequest.parse({"inputs": [tensor("stop", ["a"] * count)]})
        return len(read_tensors(body, b"", max_rows=1)["stop"])

    assert read(MAX_VALUES) == MAX_VALUES
    with refused(RequestTooLarge, "stop", MAX_VALUES + 1, f"{MAX_VALUES:,}"):
        read(MAX_VALUES + 1)
