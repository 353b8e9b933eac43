"""Calls of Hugging Face's own client, each with the plain request that has the same answer.

`tests/handlers/protocols/test_hugging_face_client.py` makes them of models in its process, and
`tests/e2e/test_other_modes.py` of a real TorchServe.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from hf_serve.scripts.paths import ARTIFACTS
from tests.serving import differences
from tests.tiny_documents import page_of

TEXT = "Nina sings in the bar."
QUESTION = {"question": "Who sings?", "context": TEXT}
LABELS = {"candidate_labels": ["bar", "film"]}
FEW = {"max_new_tokens": 6}
ANSWERING = {
    "align_to_words": True,
    "doc_stride": 5,
    "handle_impossible_answer": True,
    "max_answer_len": 4,
    "max_question_len": 8,
    "max_seq_len": 20,
    "top_k": 3,
}
NESTED = {"generate_parameters": {**FEW, "num_beams": 1}}
CLEANED = {"clean_up_tokenization_spaces": True, "truncation": "longest_first"}
EMBEDDING = {
    "normalize": True,
    "truncate": True,
    "truncation_direction": "left",
    "dimensions": 4,
    "encoding_format": "float",
}


@dataclass(frozen=True)
class Call:
    """A call of a method, and the plain request that has the same answer.

    Attributes:
        method: the method.
        mode: the mode of the model.
        inputs: the inputs of the plain request; None for those under the first argument.
        given: the arguments of the method.
        parameters: the parameters of both.
        type: the class of an answer, or of each in a list; empty for texts and numbers.
    """

    method: str
    mode: str
    given: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    type: str = ""
    inputs: Any = None

    def job(self, url: str) -> dict[str, Any]:
        """Return what the client program makes the call from."""
        arguments = {**self.given, **self.parameters}
        return {"url": f"{url}/{self.mode}", "method": self.method, "arguments": arguments}

    def expected(self, url: str) -> Any:
        """Return the answer to the plain request, as the method returns it."""
        inputs = next(iter(self.given.values())) if self.inputs is None else self.inputs
        body = {"inputs": inputs, "parameters": self.parameters}
        answer = httpx.post(f"{url}/{self.mode}", json=body, trust_env=False, timeout=300)
        assert answer.status_code == 200, answer.text
        found = OUTCOMES.get(self.method, _same)(answer.json())
        return _typed(found, self.type) if self.type else found

    def check(self, url: str, answer: Any, tolerance: float) -> None:
        """Check that the client has the answer to the plain request."""
        found, expected = map(_without_nulls, (answer, self.expected(url)))
        differing = differences(found, expected, tolerance)
        assert not differing, differing[:5]


def _same(answer: Any) -> Any:
    return answer


def _first(answer: Any) -> Any:
    return answer[0]


def _candidates(answer: Any) -> Any:
    pairs = zip(answer["labels"], answer["scores"], strict=True)
    return [{"label": label, "score": score} for label, score in pairs]


# What a method returns of an answer, where that is not the whole one.
OUTCOMES: Mapping[str, Callable[[Any], Any]] = {
    "image_to_text": _first,
    "summarization": _first,
    "translation": _first,
    "zero_shot_classification": _candidates,
}
LABEL, TOKEN = "TextClassificationOutputElement", "TokenClassificationOutputElement"
ANSWER, FILLED = "QuestionAnsweringOutputElement", "FillMaskOutputElement"
CANDIDATE = "ZeroShotClassificationOutputElement"
CELLS = "TableQuestionAnsweringOutputElement"
MASKED = "A [MASK] film."
ASKED = {"table": {"Name": ["Ada", "Tom"], "Age": ["36", "41"]}, "query": "How old is Tom?"}
PAIR = {"sentence": TEXT, "other_sentences": [TEXT, "A dull film."]}
SIMILAR = {"source_sentence": TEXT, "sentences": PAIR["other_sentences"]}
IMAGE = ARTIFACTS / "image_classification" / "sample.png"
IN_BASE64 = base64.b64encode(IMAGE.read_bytes()).decode()
SOUND = ARTIFACTS / "audio_classification" / "sample.wav"
PAGE = page_of("Nina sings in the bar.")

CALLS = [
    *(
        Call(
            "audio_classification",
            "audio_classification",
            {"audio": str(SOUND)},
            parameters,
            "AudioClassificationOutputElement",
            base64.b64encode(SOUND.read_bytes()).decode(),
        )
        for parameters in ({}, {"top_k": 2, "function_to_apply": "sigmoid"})
    ),
    *(
        Call(
            "image_classification",
            "image_classification",
            {"image": str(IMAGE)},
            parameters,
            "ImageClassificationOutputElement",
            IN_BASE64,
        )
        for parameters in ({}, {"top_k": 2, "function_to_apply": "sigmoid"})
    ),
    *(
        Call(
            "object_detection",
            "object_detection",
            {"image": str(IMAGE)},
            parameters,
            "ObjectDetectionOutputElement",
            IN_BASE64,
        )
        for parameters in ({}, {"threshold": 0.1})
    ),
    *(
        Call(
            "image_segmentation",
            "image_segmentation",
            {"image": str(IMAGE)},
            parameters,
            "ImageSegmentationOutputElement",
            IN_BASE64,
        )
        for parameters in ({}, {"subtask": "semantic", "threshold": 0.5, "mask_threshold": 0.4})
    ),
    Call(
        "image_to_text",
        "image_to_text",
        {"image": str(IMAGE)},
        {},
        "ImageToTextOutput",
        IN_BASE64,
    ),
    Call(
        "zero_shot_image_classification",
        "zero_shot_image_classification",
        {"image": str(IMAGE)},
        {**LABELS, "hypothesis_template": "A {}."},
        "ZeroShotImageClassificationOutputElement",
        IN_BASE64,
    ),
    *(
        Call(
            "visual_question_answering",
            "visual_question_answering",
            {"image": str(IMAGE), "question": "Who sings?"},
            parameters,
            "VisualQuestionAnsweringOutputElement",
            {"image": IN_BASE64, "question": "Who sings?"},
        )
        for parameters in ({}, {"top_k": 2})
    ),
    Call(
        "document_question_answering",
        "document_question_answering",
        {"image": str(IMAGE), "question": "Who sings?"},
        {"word_boxes": PAGE, "top_k": 2, "max_answer_len": 4},
        "DocumentQuestionAnsweringOutputElement",
        {"image": IN_BASE64, "question": "Who sings?"},
    ),
    Call(
        "automatic_speech_recognition",
        "automatic_speech_recognition",
        {"audio": str(SOUND)},
        {},
        "AutomaticSpeechRecognitionOutput",
        base64.b64encode(SOUND.read_bytes()).decode(),
    ),
    Call("text_classification", "sequence_classification", {"text": TEXT}, {}, LABEL),
    Call(
        "text_classification",
        "sequence_classification",
        {"text": TEXT},
        {"top_k": 2, "function_to_apply": "sigmoid"},
        LABEL,
    ),
    Call("token_classification", "token_classification", {"text": TEXT}, {}, TOKEN),
    Call(
        "token_classification",
        "token_classification",
        {"text": TEXT},
        {"aggregation_strategy": "simple", "ignore_labels": ["O"], "stride": 5},
        TOKEN,
    ),
    Call("question_answering", "question_answering", QUESTION, {}, ANSWER, QUESTION),
    Call("question_answering", "question_answering", QUESTION, ANSWERING, ANSWER, QUESTION),
    Call("summarization", "summarization", {"text": TEXT}, NESTED, "SummarizationOutput"),
    Call(
        "summarization",
        "summarization",
        {"text": TEXT},
        {**NESTED, **CLEANED},
        "SummarizationOutput",
    ),
    Call(
        "translation",
        "translation",
        {"text": TEXT},
        {**NESTED, **CLEANED},
        "TranslationOutput",
    ),
    Call("fill_mask", "fill_mask", {"text": MASKED}, {}, FILLED),
    Call(
        "fill_mask", "fill_mask", {"text": MASKED}, {"targets": ["dull", "bar"], "top_k": 2}, FILLED
    ),
    Call("zero_shot_classification", "zero_shot_classification", {"text": TEXT}, LABELS, CANDIDATE),
    Call(
        "zero_shot_classification",
        "zero_shot_classification",
        {"text": TEXT},
        {**LABELS, "multi_label": True, "hypothesis_template": "It is {}."},
        CANDIDATE,
    ),
    Call("feature_extraction", "feature_extraction", {"text": TEXT}, {"truncate": True}),
    Call("feature_extraction", "sentence_embedding", {"text": TEXT}),
    Call("feature_extraction", "sentence_embedding", {"text": [TEXT, "A dull film."]}, EMBEDDING),
    Call("sentence_similarity", "sentence_similarity", PAIR, inputs=SIMILAR),
    Call("table_question_answering", "table_question_answering", ASKED, {}, CELLS, ASKED),
    Call(
        "table_question_answering",
        "table_question_answering",
        ASKED,
        {"padding": "longest", "sequential": True, "truncation": True},
        CELLS,
        ASKED,
    ),
]


def _typed(answer: Any, name: str) -> Any:
    """Return an answer, or each in a list, with the class that the client makes of it."""
    if isinstance(answer, list):
        return [_typed(each, name) for each in answer]
    return {"class": name, **answer}


def _without_nulls(answer: Any) -> Any:
    """Leave out nulls, which the client adds for missing keys, too."""
    if isinstance(answer, list):
        return [_without_nulls(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: value for name, value in answer.items() if value is not None}
