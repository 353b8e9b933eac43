"""What transformers itself answers with a checkpoint: its pipeline, or its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    GroundingDinoProcessor,
    pipeline,
)

from hf_serve.demo_models.synthetic_images import as_base64
from tests import images, sounds
from tests.reference.rows import DULL, FINE, LONG, ODD
from tests.serving import Served

# An input as the kit reads it, and as transformers does.
Pair = tuple[Any, Any]
Ask = Callable[[Any], Any]
LABELS = ["film", "river", "music"]
CONTEXTS = ["Nina Vogel sings in the old bar near the river.", "Ada lives in Paris.", ODD]
TEXTS = [(each, each) for each in (FINE, ODD, DULL, "zzz")]
LONGER = [*TEXTS, (LONG, LONG)]
PICTURES = list(zip(images.TEXTS, images.IMAGES, strict=True))
SOUNDS = list(zip(sounds.TEXTS, sounds.SOUNDS, strict=True))
NEW_TOKENS = 6
SIDES = ("xmin", "ymin", "xmax", "ymax")
FEW: dict[str, Any] = {"max_new_tokens": NEW_TOKENS}
BEAMS: dict[str, Any] = {**FEW, "num_beams": 2}
# Of models that translate between many languages.
LANGUAGES = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}


class Reference:
    """The answers of transformers in a mode.

    Attributes:
        pairs: inputs.
        parameters: the parameters of a request.
        ask: answers one of transformers' inputs, as the kit answers it.
    """

    def __init__(self, mode: str, folder: Path, model: Served) -> None:
        self.pairs, parameters, make = MODES[mode]
        self.ask: Ask = make(folder, model, parameters)
        languages = LANGUAGES if mode_has_languages(model.engine.task) else {}
        self.parameters = {**parameters, **languages}


def mode_has_languages(task: Any) -> bool:
    """Return whether a task translates between languages that a request names."""
    return task.settings.mode == "translation" and bool(task.languages.tokens)


def _pipeline(name: str) -> Callable[..., Ask]:
    def make(folder: Path, _: Served, parameters: dict[str, Any]) -> Ask:
        found = pipeline(name, model=str(folder), device="cpu", dtype=torch.float32)
        return lambda given: found(given, **parameters)

    return make


def _generated(folder: Path, model: Served, parameters: dict[str, Any]) -> Ask:
    """Return the pipeline; that of Granite 4 without a cache, with which transformers fails."""
    kind = model.engine.task.checkpoint.config.model_type
    uncached = {"use_cache": False} if kind == "granitemoehybrid" else {}
    return _pipeline("text-generation")(folder, model, {**parameters, **uncached})


def _image_pipeline(name: str) -> Callable[..., Ask]:
    """Return a pipeline with the image processor of the kit, which needs no torchvision."""

    def make(folder: Path, model: Served, parameters: dict[str, Any]) -> Ask:
        task = model.engine.task
        auto_class = getattr(transformers, task.auto_class_for(task.checkpoint.config))
        found = pipeline(
            name,
            model=auto_class.from_pretrained(folder),
            image_processor=task.checkpoint.image_processor,
            tokenizer=getattr(task, "tokenizer", None),
            device=torch.device("cpu"),
        )
        names = set(parameters) - {"return_predicted_depth"}
        chosen = {**task.defaults, **{name: parameters[name] for name in names}}
        return lambda given: _as_json(found(given, **chosen))

    return make


def _objects(folder: Path, model: Served, parameters: dict[str, Any]) -> Ask:
    """Return the pipeline, or the processor and the model that read all labels as one text."""
    checkpoint = model.engine.task.checkpoint
    if "grounding" not in checkpoint.config.model_type:
        return _image_pipeline("zero-shot-object-detection")(folder, model, parameters)
    processor = GroundingDinoProcessor(checkpoint.image_processor, checkpoint.text_tokenizer)
    loaded = transformers.AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()

    def ask(image: Image.Image) -> Any:
        labels = [parameters["candidate_labels"]]
        with torch.no_grad():
            outputs = loaded(**processor(images=image, text=labels, return_tensors="pt"))
        (found,) = processor.post_process_grounded_object_detection(
            outputs, threshold=parameters["threshold"], target_sizes=[(image.height, image.width)]
        )
        objects = [
            {"score": score, "label": label, "box": dict(zip(SIDES, box, strict=True))}
            for score, label, box in zip(
                found["scores"].tolist(),
                found["text_labels"],
                found["boxes"].int().tolist(),
                strict=False,
            )
        ]
        return sorted(objects, key=lambda each: -each["score"])

    return ask


def _sound_pipeline(name: str) -> Callable[..., Ask]:
    def make(folder: Path, _: Served, parameters: dict[str, Any]) -> Ask:
        found = pipeline(name, model=str(folder), device="cpu", dtype=torch.float32)
        return lambda given: found(
            {"raw": given.copy(), "sampling_rate": sounds.RATE}, **parameters
        )

    return make


def _written(key: str) -> Callable[..., Ask]:
    """Return what an encoder-decoder writes, which transformers 5 has no pipelines for."""

    def make(folder: Path, model: Served, parameters: dict[str, Any]) -> Ask:
        task: Any = model.engine.task
        tokenizer = task.checkpoint.text_tokenizer
        loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
        settings = dict(parameters)
        if mode_has_languages(task):
            tokenizer = AutoTokenizer.from_pretrained(folder, src_lang=LANGUAGES["src_lang"])
            target = tokenizer.convert_tokens_to_ids(LANGUAGES["tgt_lang"])
            settings["forced_bos_token_id"] = target

        prefix = getattr(loaded.config, "prefix", None) or ""

        def ask(text: str) -> Any:
            ids = loaded.generate(**tokenizer(prefix + text, return_tensors="pt"), **settings)
            return [{key: tokenizer.decode(ids[0], skip_special_tokens=True)}]

        return ask

    return make


def _captions(folder: Path, model: Served, parameters: dict[str, Any]) -> Ask:
    task = model.engine.task
    loaded = transformers.AutoModelForImageTextToText.from_pretrained(folder)

    def ask(image: Image.Image) -> Any:
        inputs = task.checkpoint.image_processor(images=image, return_tensors="pt")
        (ids,) = loaded.generate(**inputs, **parameters)
        return [
            {"generated_text": task.checkpoint.text_tokenizer.decode(ids, skip_special_tokens=True)}
        ]

    return ask


def _chats(folder: Path, model: Served, parameters: dict[str, Any]) -> Ask:
    """Return what a vision language model writes about an image and a text."""
    task: Any = model.engine.task
    processor, tokenizer = task.checkpoint.processor, task.tokenizer
    loaded = transformers.AutoModelForImageTextToText.from_pretrained(folder)

    def ask(given: tuple[Image.Image, str]) -> Any:
        image, text = given
        parts = [{"type": "image"}, {"type": "text", "text": text}]
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": parts}], add_generation_prompt=True, tokenize=False
        )
        inputs = processor(text=[prompt], images=[[image]], return_tensors="pt")
        ids = loaded.generate(**inputs, **parameters)[0, inputs["input_ids"].shape[1] :]
        return [{"generated_text": tokenizer.decode(ids, skip_special_tokens=True)}]

    return ask


def _spans(folder: Path, _: Served, __: dict[str, Any]) -> Ask:
    """Return the span of the highest probability, of all that the pipeline looks at."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForQuestionAnswering.from_pretrained(folder)

    def ask(given: dict[str, str]) -> Any:
        encoded = tokenizer(
            given["question"], given["context"], return_tensors="pt", return_offsets_mapping=True
        )
        offsets = encoded.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            outputs = model(**encoded)
        inside = torch.tensor([each == 1 for each in encoded.sequence_ids(0)])
        kept = inside | (torch.arange(len(inside)) == 0)  # The first token stands for no answer.
        start, end = (
            torch.where(kept, logits[0], -torch.inf).softmax(-1).where(inside, 0.0)
            for logits in (outputs.start_logits, outputs.end_logits)
        )
        scores = torch.triu(start[:, None] * end[None]).tril(14)
        first, last = divmod(int(scores.argmax()), len(inside))
        begin, stop = offsets[first][0], offsets[last][1]
        answer = given["context"][begin:stop]
        return {"score": float(scores.max()), "start": begin, "end": stop, "answer": answer}

    return ask


def _zero_shot(folder: Path, _: Served, parameters: dict[str, Any]) -> Ask:
    found = pipeline("zero-shot-classification", model=str(folder), device="cpu")
    return lambda given: found(given, **parameters)


# The words of the model card of Qwen3-Reranker.
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct"
    ' provided. Note that the answer can only be "yes" or "no".'
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
BEFORE = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def _judgements(folder: Path, _: Served, __: dict[str, Any]) -> Ask:
    """Return the scores of a Qwen3-Reranker, or of a classifier that was made of it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    (name,) = AutoConfig.from_pretrained(folder).architectures
    model = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()
    words = [tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no")]

    def score(query: str, document: str) -> float:
        pair = f"<Instruct>: {INSTRUCTION}\n<Query>: {query}\n<Document>: {document}"
        parts = (tokenizer(each, add_special_tokens=False) for each in (BEFORE, pair, BEHIND))
        ids = torch.tensor([[number for part in parts for number in part["input_ids"]]])
        with torch.no_grad():
            logits = model(ids).logits.squeeze(0)
        last = logits if logits.ndim == 1 else logits[-1, words]
        return float(last.softmax(-1)[0] if len(last) > 1 else last.sigmoid())

    def ask(given: dict[str, Any]) -> Any:
        scores = [score(given["query"], text) for text in given["texts"]]
        order = sorted(range(len(scores)), key=lambda number: -scores[number])
        return [{"index": number, "score": scores[number]} for number in order]

    return ask


def _vectors(folder: Path, model: Served, _: dict[str, Any]) -> Ask:
    """Return the vectors of texts and of images by a dual encoder."""
    task = model.engine.task
    loaded: Any = transformers.AutoModel.from_pretrained(folder)
    fixed = loaded.config.model_type.startswith("siglip")
    padding = {"padding": "max_length", "max_length": 64, "truncation": True} if fixed else {}

    def ask(given: Any) -> Any:
        with torch.no_grad():
            if isinstance(given, str):
                inputs = task.checkpoint.text_tokenizer(given, return_tensors="pt", **padding)
                return loaded.get_text_features(**inputs).pooler_output[0].tolist()
            pixels = task.checkpoint.image_processor(images=given, return_tensors="pt")
            return loaded.get_image_features(**pixels).pooler_output[0].tolist()

    return ask


def _pages(folder: Path, model: Served, _: dict[str, Any]) -> Ask:
    """Return the vectors of queries and of pages."""
    loaded = transformers.AutoModelForPreTraining.from_pretrained(folder, dtype=torch.float32)
    processor = model.engine.task.checkpoint.processor

    def ask(given: Any) -> Any:
        batch = (
            processor.process_queries(text=[given], return_tensors="pt")
            if isinstance(given, str)
            else processor.process_images(images=[given], return_tensors="pt")
        )
        with torch.no_grad():
            return loaded(**batch).embeddings[0].tolist()

    return ask


def _transcripts(folder: Path, model: Served, parameters: dict[str, Any]) -> Ask:
    """Return the pipeline, or what Moonshine writes with the tokens that its model card allows."""
    checkpoint = model.engine.task.checkpoint
    if checkpoint.config.model_type != "moonshine":
        return _sound_pipeline("automatic-speech-recognition")(folder, model, parameters)
    loaded = transformers.MoonshineForConditionalGeneration.from_pretrained(folder)

    def ask(given: Any) -> Any:
        inputs = checkpoint.feature_extractor(given, sampling_rate=sounds.RATE, return_tensors="pt")
        most = max(9, int(6.5 * len(given) / sounds.RATE))
        (ids,) = loaded.generate(**inputs, max_length=most)
        return {"text": checkpoint.any_tokenizer.decode(ids, skip_special_tokens=True)}

    return ask


def comparable(found: Any, wanted: Any) -> tuple[Any, Any]:
    """Return an answer and that of transformers, without what the answer leaves out."""
    theirs = _as_json(wanted)
    if isinstance(found, dict) and isinstance(theirs, dict):
        theirs = {key: value for key, value in theirs.items() if key in found}
    return found, theirs


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, Image.Image):
        return as_base64(value)
    return value.tolist() if isinstance(value, (torch.Tensor, np.generic)) else value


Mode = tuple[Sequence[Pair], dict[str, Any], Callable[..., Ask]]
QUESTIONS = [{"question": "Who sings?", "context": each} for each in CONTEXTS]
RANKINGS: list[Pair] = [
    (each, each)
    for query in ("Who sings in the bar?", DULL)
    for each in [{"query": query, "texts": [FINE, ODD, LONG, "zzz"]}]
]
MODES: dict[str, Mode] = {
    "sequence_classification": (LONGER, {"top_k": None}, _pipeline("text-classification")),
    "zero_shot_classification": (TEXTS, {"candidate_labels": LABELS}, _zero_shot),
    "token_classification": (
        TEXTS,
        {"aggregation_strategy": "simple"},
        _pipeline("token-classification"),
    ),
    "question_answering": ([(each, each) for each in QUESTIONS], {"align_to_words": False}, _spans),
    "text_generation": (LONGER, {**FEW, "do_sample": False}, _generated),
    "summarization": (TEXTS, {**BEAMS, "min_length": 0}, _written("summary_text")),
    "translation": (TEXTS, BEAMS, _written("translation_text")),
    "text2text_generation": (TEXTS, BEAMS, _written("generated_text")),
    "image_classification": (PICTURES, {}, _image_pipeline("image-classification")),
    "image_feature_extraction": (PICTURES, {}, _image_pipeline("image-feature-extraction")),
    "object_detection": (PICTURES, {"threshold": 0.0}, _image_pipeline("object-detection")),
    "image_segmentation": (PICTURES, {}, _image_pipeline("image-segmentation")),
    "depth_estimation": (PICTURES, {}, _image_pipeline("depth-estimation")),
    "zero_shot_image_classification": (
        PICTURES,
        {"candidate_labels": LABELS},
        _image_pipeline("zero-shot-image-classification"),
    ),
    "zero_shot_object_detection": (
        PICTURES,
        {"candidate_labels": LABELS, "threshold": 0.1},
        _objects,
    ),
    "multimodal_embedding": (
        [*LONGER, *(({"image": each}, image) for each, image in PICTURES)],
        {},
        _vectors,
    ),
    "late_interaction": (
        [*TEXTS, *(({"image": each}, image) for each, image in PICTURES)],
        {},
        _pages,
    ),
    "sentence_ranking": (RANKINGS, {}, _judgements),
    "image_to_text": (PICTURES, FEW, _captions),
    "image_text_to_text": (
        [({"image": ours, "text": FINE}, (theirs, FINE)) for ours, theirs in PICTURES],
        {**FEW, "do_sample": False},
        _chats,
    ),
    "audio_classification": (SOUNDS, {"top_k": 2}, _sound_pipeline("audio-classification")),
    "automatic_speech_recognition": (SOUNDS, {}, _transcripts),
}
