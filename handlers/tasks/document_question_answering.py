"""A question about a page, to the words that answer it.

    {"inputs": {"question": "What is the total?",
                "word_boxes": [["Total", [80, 700, 150, 720]], ["40.20", [700, 700, 780, 720]]]}}
    -> [{"score": 0.97, "answer": "40.20", "start": 1, "end": 1}]

Boxes are left, top, right and bottom in thousandths of the page. The models of the LayoutLM family
read words with their boxes, which Tesseract finds where a request has an image only. Beside words,
an image is read by models that take its pixels, and by no others. Donut reads the image alone, and
writes an answer without a score. Answers are computed as by transformers'
pipeline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from tokenizers import Encoding
from transformers import PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.padding import Padding, Tensors, run_by_shape, run_in_groups
from ..batching.rows import Outputs, RowOutcome
from ..batching.tokenization import Window, check_length, lowest_limit, tokenize
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import BadRequest, RequestError, RequestTooLarge, TextTooLong, WrongCheckpoint
from ..media.files import RemoteFile
from ..media.images import IMAGE, SCALE, WordBoxes, read_image, read_words
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline, before
from ..telemetry.metrics import Meter
from ..types.model_info import Exports, ModelOutputs, Rows, TaskDescription, Wire
from ..types.parameters import ANY, PipelineNames, check_text, json_type, parse_json
from ..types.request import Request
from .base import BaseTask
from .bases.image import (
    EXAMPLE,
    IMAGE_ROWS,
    PIXELS,
    ImageQuestionTask,
    ImageRow,
    Preprocessor,
    answer_settings,
    answer_text,
    generate_answers,
)
from .bases.media import FILE_CHARACTERS, MediaInput, MediaReader
from .bases.text import TextTask
from .question_answering import AnswerReader, SpanParameters, context_windows, truncate_question

FORM = '{"image": …, "question": …, "word_boxes": [["word", [left, top, right, bottom]], …]}'
WORD_BOXES = '[["word", [left, top, right, bottom]], …]'
BOXES = "bbox"
MAX_WORDS = 50_000
# The characters of a word with its box in JSON.
WORD_CHARACTERS = 100
READS_PIXELS = "layoutlmv3"
DONUT = "vision-encoder-decoder"
MOST_OVERLAP = 256
LANGUAGE = r"^[A-Za-z_]{1,20}(\+[A-Za-z_]{1,20}){0,4}$"
ENCODER = "donut-swin"
PROMPT = "<s_docvqa><s_question>{}</s_question><s_answer>"
TAG = re.compile(r"<.*?>")
ANSWER = re.compile(r"<s_answer>(.*)</s_answer>")


class DocumentParameters(SpanParameters):
    """Parameters of the document-question-answering pipeline; Donut has none of them."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "timeout": ANY, "tesseract_config": ("",)}
    )

    max_seq_len: PositiveInt | None = None
    """Tokens of one window: question, words and special tokens. Without it, the model's limit."""
    doc_stride: NonNegativeInt | None = None
    """Overlap of two windows in tokens. Without it, half a window, 256 at most."""
    lang: Annotated[str, Field(pattern=LANGUAGE)] | None = None
    """Language that Tesseract reads, by its own code. Without it, English."""
    word_boxes: list[list[Any]] | str | None = None
    """The words of the page with their boxes, where they are not among the inputs."""


class DocumentInput(TypedDict):
    """A question about a page: its image, its words with their boxes, or both."""

    question: str
    image: NotRequired[str | None]
    word_boxes: NotRequired[list[tuple[str, tuple[float, float, float, float]]] | str | None]


class DocumentAnswer(TypedDict):
    """An answer, its probability, and its first and last word; a generated one is a text alone."""

    score: NotRequired[float]
    answer: str | None
    start: NotRequired[int]
    end: NotRequired[int]


@dataclass(frozen=True)
class DocumentQuestion:
    """A question about a page, with its words where a request has them.

    `files` has the image file of the page where the model or Tesseract reads it.
    """

    question: str
    files: Sequence[bytes | RemoteFile]
    page: WordBoxes | None
    parameters: DocumentParameters


@dataclass(frozen=True)
class DocumentRow(Window):
    """A window of a page.

    Attributes:
        page: the words and boxes of the whole page.
        pixels: the pixels of the page, for models that read them.
        patches: the number of tokens that the model makes of them.
    """

    page: WordBoxes
    pixels: npt.NDArray[Any] | None = None
    patches: int = 0

    @property
    def cost(self) -> int:
        return len(self) + self.patches


class Task(TextTask[DocumentQuestion, DocumentRow]):
    """Questions about pages of words with boxes, for LayoutLM and LayoutLMv3."""

    needs_offsets = True
    auto_class = "AutoModelForDocumentQuestionAnswering"
    description = TaskDescription(
        Wire(
            inputs=DocumentInput,
            results=list[DocumentAnswer],
            example={
                "inputs": {
                    "image": EXAMPLE["inputs"],
                    "question": "Who sings?",
                    "word_boxes": [["Nina", [100, 100, 180, 140]], ["sings", [200, 100, 290, 140]]],
                }
            },
            input_columns=(
                ("question", "word_boxes"),
                ("image", "question", "word_boxes"),
                ("image", "question"),
            ),
            result_columns=("answer", "score"),
        ),
        outputs=ModelOutputs(
            ("start_logits", "end_logits"), per_token=("start_logits", "end_logits")
        ),
        rows=Rows(supports_packing=False, smaller_requests="fewer or shorter pages"),
        exports=Exports(supported=False),
    )
    parameters = DocumentParameters

    @classmethod
    def for_config(cls, config: PreTrainedConfig) -> type[BaseTask[Any, Any]]:
        return DocumentImageTask if config.model_type == DONUT else cls

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._reads_pixels = checkpoint.config.model_type == READS_PIXELS
        self.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
        self._reader = MediaReader(settings, IMAGE, settings.max_image_bytes)

    @classmethod
    def example_inputs(cls, text: str) -> DocumentInput:
        words = text.split()[1:]  # one fewer, for the [SEP] between question and words
        middle = min(6, len(words) // 2)
        page = [(word, (0.0, 0.0, 10.0, 10.0)) for word in words[middle:]]
        return {"question": " ".join(words[:middle]), "word_boxes": page}

    def parse(self, request: Request) -> DocumentQuestion:
        parameters: DocumentParameters = self.read_parameters(request.parameters)
        question, file, given = read_inputs(request.inputs)
        question = check_text(question, "question", self.max_characters)
        pages = [
            read_word_boxes(each, self.max_characters)
            for each in (given, parameters.word_boxes)
            if each is not None
        ]
        page = next(iter(pages), None)
        if file is None and page is None:
            raise BadRequest(f"inputs has neither an image nor word_boxes; send {FORM}.")
        files = [] if file is None else [self._reader.files.file(file, "image")]
        return DocumentQuestion(
            truncate_question(self.tokenizer, question, parameters.max_question_len),
            files if page is None or self._reads_pixels else [],
            page,
            parameters,
        )

    def encode(self, inputs: Sequence[DocumentQuestion]) -> list[list[DocumentRow] | RequestError]:
        return self._reader.read(self._rows, inputs, [item.files for item in inputs])

    def encoding_cost(self, item: DocumentQuestion) -> int:
        return FILE_CHARACTERS * len(item.files)

    def run(
        self,
        model: Model,
        rows: Sequence[DocumentRow],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        run = partial(super().run, model, meter=meter, deadline=deadline)
        return run_in_groups(
            run, rows, lambda row: None if row.pixels is None else row.pixels.shape
        )

    def collate(self, rows: Sequence[DocumentRow]) -> Tensors:
        batch = super().collate(rows)
        pixels = [row.pixels for row in rows if row.pixels is not None]
        return {**batch, PIXELS: torch.from_numpy(np.stack(pixels))} if pixels else batch

    def decode(
        self, item: DocumentQuestion, rows: Sequence[DocumentRow], outputs: Sequence[Outputs]
    ) -> Any:
        return self.answers(item, rows, outputs)

    def answers(
        self, item: DocumentQuestion, rows: Sequence[DocumentRow], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Return the `top_k` best answers over all windows, best first."""
        windows, settings = list(zip(rows, outputs, strict=True)), item.parameters
        limits = {"max_tokens": settings.max_answer_len, "count": settings.top_k}
        found = [
            _answer(row, first, last, score)
            for row, output in windows
            for first, last, score in self.reader.spans(row, output, **limits)
        ]
        if settings.handle_impossible_answer:
            no_answer = min(self.reader.no_answer_score(*window) for window in windows)
            found.append({"score": no_answer, "answer": "", "start": 0, "end": 0})
        return sorted(found, key=lambda answer: -float(answer["score"]))[: settings.top_k]

    @cached_property
    def reader(self) -> AnswerReader:
        """Finds spans in a window."""
        return AnswerReader(1, self.tokenizer.cls_token_id)

    @property
    def padding(self) -> Padding:
        return replace(super().padding, side="right", sizes={BOXES: 4})

    def _warmup_row(self, length: int) -> DocumentRow:
        features = super()._warmup_row(length).features
        return DocumentRow({**features, BOXES: [[0] * 4] * length}, Encoding(), WordBoxes([], []))

    def _rows(self, item: DocumentQuestion, files: Sequence[bytes]) -> list[DocumentRow]:
        images = [read_image(file, "The image", self.settings.max_image_pixels) for file in files]
        page = item.page or read_words(images[0], item.parameters.lang)
        pixels = self._preprocessor(images[0])[PIXELS] if images and self._reads_pixels else None
        patches = 0 if pixels is None else self._patches(pixels)
        return [
            DocumentRow(self._with_boxes(window, page), window.encoding, page, pixels, patches)
            for window in self._windows(item, page)
        ]

    def _patches(self, pixels: npt.NDArray[Any]) -> int:
        """Return how many tokens the model makes of an image, with one for the whole."""
        height, width = pixels.shape[-2:]
        return height * width // int(self.checkpoint.config.patch_size) ** 2 + 1

    def _windows(self, item: DocumentQuestion, page: WordBoxes) -> list[Window]:
        size, stride = self._window_size(item), item.parameters.doc_stride
        if stride is not None and stride >= size:
            raise BadRequest(
                f"doc_stride is {stride:,}, and a window has {size:,} tokens; let windows overlap"
                " less."
            )
        texts: tuple[Any, Any] = (item.question.split(), list(page.words))
        options: dict[str, Any] = {"is_split_into_words": True}
        return context_windows(
            self.tokenizer,
            texts,
            tokenize(self.tokenizer, [texts], **options),
            size=size,
            stride=min(size // 2, MOST_OVERLAP) if stride is None else stride,
            limit=self.settings.max_rows,
            **options,
        )

    def _window_size(self, item: DocumentQuestion) -> int:
        limits = (
            item.parameters.max_seq_len,
            self.max_tokens,
            self.tokenizer.model_max_length,
        )
        return min(limit for limit in limits if limit)

    def _with_boxes(self, window: Window, page: WordBoxes) -> Mapping[str, Any]:
        """Return the model inputs of a window with the box of each token.

        A question has the box of a point, and a separator in LayoutLM the opposite point.
        """
        ids = np.array(window.features["input_ids"])
        in_page = self.reader.mask(window)
        corner = 0 if self._reads_pixels else SCALE
        boxes = np.where(ids[:, None] == self.tokenizer.sep_token_id, corner, 0).repeat(4, axis=1)
        words = [window.encoding.word_ids[token] for token in np.flatnonzero(in_page)]
        boxes[in_page] = [page.boxes[word] for word in words]
        return {**window.features, BOXES: boxes}

    @cached_property
    def _preprocessor(self) -> Preprocessor:
        processor: Any = self.checkpoint.image_processor
        # The request has the words.
        processor.apply_ocr = False
        return Preprocessor(processor)


class DonutTask(ImageQuestionTask):
    """Questions about documents, for Donut."""

    auto_class = "AutoModelForImageTextToText"
    explains = False

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        encoder = checkpoint.config.encoder.model_type
        if encoder != ENCODER:
            raise WrongCheckpoint(
                "config.json",
                f"is that of a {encoder} model, which writes no answers to questions",
                "use a checkpoint of Donut or of LayoutLM",
            )
        self._generation = answer_settings(checkpoint, settings.max_sequences)

    def tokens(self, question: str) -> dict[str, np.ndarray[Any, Any]]:
        prompt = PROMPT.format(question)
        ids = tokenize(self.tokenizer, [(prompt, None)], add_special_tokens=False)["input_ids"][0]
        # One token of the answer has to fit, too.
        most = self.max_tokens and self.max_tokens - 1
        check_length(len(ids), most, "the question with the prompt of the model")
        return {"decoder_input_ids": np.asarray(ids, np.int64)}

    def run(
        self, model: Model, rows: Sequence[ImageRow], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        generate = generate_answers(model, self._generation, deadline, self.max_tokens)
        return run_by_shape(before(deadline, generate), rows, budget=self.budget, meter=meter)

    def decode(self, item: MediaInput, rows: Sequence[ImageRow], outputs: Sequence[Outputs]) -> Any:
        text = answer_text(self.tokenizer, outputs[0], skip_special_tokens=False)
        for token in (self.tokenizer.eos_token, self.tokenizer.pad_token):
            text = text.replace(token, "")
        found = ANSWER.search(TAG.sub("", text, count=1).strip())
        return [{"answer": found.group(1).strip() if found else None}]

    @property
    def truncates(self) -> bool:
        """A prompt that is cut would have no place for the answer."""
        return False

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of a prompt and its answer."""
        return lowest_limit(super().max_tokens, self._generation.max_length)


class DocumentImageTask(DonutTask):
    """Questions about images of pages, for Donut."""

    parameters = DocumentParameters
    description = TaskDescription(
        Wire(
            inputs=DocumentInput,
            results=list[DocumentAnswer],
            example=Task.description.wire.example,
            input_columns=(("image", "question"), ("image", "question", "word_boxes")),
            result_columns=("answer", "score"),
        ),
        outputs=ModelOutputs(()),
        rows=IMAGE_ROWS,
        exports=Exports(supported=False),
    )

    def read_inputs(self, inputs: Any) -> tuple[Any, Any]:
        question, file, _ = read_inputs(inputs)
        if file is None:
            raise BadRequest(f"inputs has no image, which this model reads; send {FORM}.")
        return file, question


def read_inputs(inputs: Any) -> tuple[Any, Any, Any]:
    """Return the question, the image and the words of a request; None for what it has not.

    Raises:
        BadRequest: it has no question, or other keys.
    """
    if not isinstance(inputs, dict):
        raise BadRequest(f"inputs must be {FORM}, and is {json_type(inputs)}.")
    if "question" not in inputs or inputs.keys() - {"image", "question", "word_boxes"}:
        raise BadRequest(f"inputs has the keys {quote(sorted(map(str, inputs)))}; send {FORM}.")
    return inputs["question"], inputs.get("image"), inputs.get("word_boxes")


def _answer(row: DocumentRow, first: int, last: int, score: float) -> dict[str, Any]:
    start, end = row.encoding.word_ids[first], row.encoding.word_ids[last]
    answer = " ".join(row.page.words[start : end + 1])
    return {"score": score, "answer": answer, "start": start, "end": end}


def read_word_boxes(value: Any, max_characters: int) -> WordBoxes:
    """Return the words of a request: a list of pairs, or the JSON text of one.

    Raises:
        BadRequest: it is no list of words with boxes, is empty, or a box is not within the page.
        RequestTooLarge: there are too many words or characters.
    """
    pairs = parse_json(value, "word_boxes", MAX_WORDS * WORD_CHARACTERS)
    if not isinstance(pairs, list):
        raise BadRequest(f"word_boxes must be {WORD_BOXES}, and is {json_type(pairs)}.")
    if not pairs:
        raise BadRequest(f"word_boxes is empty; send {WORD_BOXES}.")
    if len(pairs) > MAX_WORDS:
        raise RequestTooLarge(
            f"word_boxes has {len(pairs):,} words, and {MAX_WORDS:,} are allowed."
        )
    words = [_word(pair, number) for number, pair in enumerate(pairs)]
    characters = sum(map(len, words))
    if characters > max_characters:
        raise TextTooLong(
            f"word_boxes has {characters:,} characters, and this model takes {max_characters:,}"
            "; send less."
        )
    return WordBoxes(words, [_box(pair[1], number) for number, pair in enumerate(pairs)])


def _word(pair: Any, number: int) -> str:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
        raise BadRequest(f"word_boxes[{number}] is no word with its box; send {WORD_BOXES}.")
    word = pair[0]
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise BadRequest(
            f"word_boxes[{number}] has half of a surrogate pair; send whole characters."
        ) from None
    return word


def _box(value: Any, number: int) -> list[int]:
    if not isinstance(value, (list, tuple)) or len(value) != 4 or not all(map(_is_number, value)):
        raise BadRequest(
            f"word_boxes[{number}] has no box of four numbers; send {WORD_BOXES}, from 0 to"
            f" {SCALE}."
        )
    left, top, right, bottom = box = [int(each) for each in value]
    if not (0 <= left <= right <= SCALE and 0 <= top <= bottom <= SCALE):
        raise BadRequest(
            f"word_boxes[{number}] has a box that is not within the page; send left, top, right and"
            f" bottom in thousandths of its width and height, from 0 to {SCALE}."
        )
    return box


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, int) or math.isfinite(value)
