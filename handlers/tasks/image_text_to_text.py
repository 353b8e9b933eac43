"""Images and a text to a text, greedy by default: chats of vision language models.

    {"inputs": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}},
        {"type": "text", "text": "What is it?"}]}]}
    -> [{"generated_text": "A red square."}]

    {"inputs": {"image": "<base64>", "text": "What is it?"}}

The text may also be a prompt with the model's image token. Results are what
`model.generate` returns for the prompt alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
import torch
from pydantic import Field
from tokenizers import Encoding
from transformers import PreTrainedConfig, ProcessorMixin
from typing_extensions import TypedDict

from ..batching.padding import pad, unpad
from ..batching.rows import Outputs
from ..batching.tokenization import Window
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import (
    BadRequest,
    RequestError,
    RequestTooLarge,
    TextTooLong,
    Unprocessable,
    WrongCheckpoint,
    summarize,
)
from ..generation.chat import Message, chat_template, check_messages, prompt_of, with_plain_parts
from ..generation.generator import Prompt, join_media
from ..generation.parameters import GenerationParameters
from ..media.files import MediaFiles, RemoteFile
from ..media.images import IMAGE, read_image
from ..model import Model
from ..types.model_info import (
    TEXT_COLUMN,
    Exports,
    Generation,
    ModelOutputs,
    Rows,
    TaskDescription,
    Wire,
)
from ..types.parameters import check_text
from ..types.request import Request, TokenIds, TokenizedText
from . import text_generation
from .bases.media import FILE_CHARACTERS, MediaReader
from .text_generation import Generated, PromptInput

NEW_TOKENS = 256
FORM = '{"image": …, "text": …}'
IMAGE_KEYS = ("image", "images")
PART_KEYS = ("image", "url", "base64")
IMAGE_PART = {"type": "image"}
# A space of no width, which makes plain text of the name of a token.
ZERO_WIDTH_SPACE = "\u200b"
# The code of templates that read the type of a part; other templates read texts as contents.
READS_PARTS = re.compile(r"""\[['"]type['"]\]|\.type\b|selectattr\(\s*['"]type""")


class ImageUrl(TypedDict):
    """The location of an image: a data URI, or a URL of an allowed host."""

    url: str
    detail: NotRequired[str]


class ContentPart(TypedDict):
    """A text or an image in a message."""

    type: Literal["text", "image_url", "image"]
    text: NotRequired[str]
    image_url: NotRequired[ImageUrl | str]
    image: NotRequired[str]
    url: NotRequired[str]
    base64: NotRequired[str]


class ImageMessage(TypedDict):
    """One message of a chat, whose content may have images."""

    role: str
    content: str | list[ContentPart]


@dataclass(frozen=True)
class ImageChat:
    """The messages of a chat, and its images in their order.

    Attributes:
        messages: the messages, with texts as contents.
        parts: the parts of each message, with only the type of an image; None for a text.
        files: the files of the images.
    """

    messages: Sequence[Message]
    parts: Sequence[Sequence[Mapping[str, str]] | None]
    files: Sequence[bytes | RemoteFile]

    def escaped(self, tokens: Sequence[str]) -> ImageChat:
        """Return the chat with texts in which the names of some tokens are no tokens."""
        messages: list[Any] = [
            {**each, "content": _escaped(each["content"], tokens)} for each in self.messages
        ]
        parts = [
            None
            if of_message is None
            else [
                part if part is IMAGE_PART else {**part, "text": _escaped(part["text"], tokens)}
                for part in of_message
            ]
            for of_message in self.parts
        ]
        return replace(self, messages=messages, parts=parts)

    def for_template(self, template: str, image_token: str) -> list[Any]:
        """Return the messages with parts or, for a template that needs texts, image tokens."""
        reads_parts = bool(READS_PARTS.search(template))
        pairs = zip(self.messages, self.parts, strict=True)
        return [_turn(message, parts, image_token, reads_parts) for message, parts in pairs]


class ImageTextParameters(GenerationParameters):
    """Parameters of one prompt or chat; the generation config has the defaults."""

    return_full_text: bool = False
    """Returns the prompt before the new text; of a chat its messages, without the images."""

    def check(self, max_sequences: int, vocabulary: int) -> None:
        super().check(max_sequences, vocabulary)
        if self.decoder_input_details:
            raise Unprocessable(
                "decoder_input_details is not supported by mode image_text_to_text; leave it out."
            )


class ImageTextInput(TypedDict):
    """Images in base64 or as data URIs, and a text about them."""

    text: str
    image: NotRequired[str]
    images: NotRequired[list[str]]


@dataclass(frozen=True)
class ImagePromptInput(PromptInput):
    """A prompt, and the files of the images whose tokens it has."""

    files: Sequence[bytes | RemoteFile] = ()


class Task(text_generation.Task):
    """Texts about images, and chats with images, by a decoder that reads both."""

    auto_class = "AutoModelForImageTextToText"
    parameters = ImageTextParameters
    description = TaskDescription(
        Wire(
            inputs=str | Annotated[list[ImageMessage], Field(min_length=1)] | ImageTextInput,
            results=list[Generated],
            example={
                "inputs": "What is it?",
                "parameters": {"max_new_tokens": 8},
            },
            input_columns=(TEXT_COLUMN, ("image", "text")),
            result_columns=("generated_text",),
        ),
        outputs=ModelOutputs(("logits",), per_token=("logits",)),
        rows=Rows(supports_packing=False),
        exports=Exports(),
        generation=Generation(texts=True),
    )

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._processor = checkpoint.processor
        self._image_token = image_token(self._processor)
        self._media_tokens = _media_tokens(self._processor, self._image_token)
        if getattr(self._processor, "chat_template", None):
            self.tokenizer.chat_template = self._processor.chat_template
        self._reader = MediaReader(settings, IMAGE, settings.max_image_bytes)

    @classmethod
    def for_config(cls, config: PreTrainedConfig) -> type[Task]:
        if config.is_encoder_decoder:
            raise WrongCheckpoint(
                "config.json",
                f"is of a {config.model_type} model, whose encoder reads images and texts for a"
                " decoder, and this mode serves decoders that read both",
                "serve a vision language model, such as LLaVA, Qwen2-VL or SmolVLM",
            )
        return cls

    def parse(self, request: Request) -> PromptInput:
        item = super().parse(request)
        images = len(_files(item))
        if images > self.settings.max_images:
            raise RequestTooLarge(
                f"The request has {images:,} images, and this model takes"
                f" {self.settings.max_images:,}; send fewer."
            )
        if images and item.parameters.prompt_lookup_num_tokens:
            raise Unprocessable(
                "prompt_lookup_num_tokens cannot be done with images; leave it out."
            )
        if images > 1 and item.parameters.sequences > 1:
            raise Unprocessable(
                "Beams and several texts cannot be done with several images; leave num_beams and"
                " num_return_sequences out."
            )
        return item

    def encode(self, inputs: Sequence[PromptInput]) -> list[list[Prompt] | RequestError]:
        """Return the row of each prompt; images are read and preprocessed in threads."""
        texts = iter(super().encode([item for item in inputs if not _files(item)]))
        shown = [item for item in inputs if _files(item)]
        images = iter(self._reader.read(self._row_of_images, shown, list(map(_files, shown))))
        return [next(images if _files(item) else texts) for item in inputs]

    def encoding_cost(self, item: PromptInput) -> int:
        return FILE_CHARACTERS * len(_files(item))

    def outputs_for_comparison(self, model: Model, rows: Sequence[Prompt]) -> Sequence[Outputs]:
        """Return the scores of the token after each token of a prompt, one prompt after another."""
        found: list[Outputs] = []
        for row in rows:
            outputs = model.forward({**pad([row], self.padding), **join_media([row])})
            found += unpad(outputs, [row], self.padding, self.description.outputs.per_token)
        return found

    def tokenize_media(self, request: Request) -> TokenizedText | None:
        item = self._parse_prompt(request, self.read_parameters(request.parameters))
        if not _files(item):
            return None
        (found,) = self._reader.read(
            lambda *given: [self._features(*given)], [item], [_files(item)]
        )
        if isinstance(found, RequestError):
            raise found
        ids = found[0]["input_ids"]
        names = self.tokenizer.convert_ids_to_tokens(ids.tolist())
        return TokenizedText(item.prompt, ids, None, {}, names)

    @property
    def _default_new_tokens(self) -> int:
        return int(self.settings.max_length or self.generation_config.max_new_tokens or NEW_TOKENS)

    def _parse_prompt(self, request: Request, parameters: GenerationParameters) -> PromptInput:
        inputs = request.inputs
        if isinstance(inputs, dict):
            return self._input_of_form(inputs, request, parameters)
        if isinstance(inputs, list) and any(isinstance(item, dict) for item in inputs):
            chat = read_chat(inputs, self._reader.files, self.max_characters)
            return self._input_of_chat(chat, request, parameters)
        if isinstance(inputs, str):
            self._check_placeholders(inputs, 0)
        if isinstance(inputs, TokenIds):
            self._check_ids(inputs)
        return super()._parse_prompt(request, parameters)

    def _input_of_form(
        self, inputs: Mapping[str, Any], request: Request, parameters: GenerationParameters
    ) -> PromptInput:
        """Return the input of images and a text: a prompt with image tokens, or else a chat."""
        key = next((key for key in IMAGE_KEYS if inputs.keys() == {key, "text"}), None)
        if key is None:
            raise BadRequest(f"inputs has the keys {quote(sorted(map(str, inputs)))}; send {FORM}.")
        given = inputs[key] if isinstance(inputs[key], list) else [inputs[key]]
        text = inputs["text"]
        if text != "" or self.tokenizer.chat_template is None:
            check_text(text, "text", self.max_characters)
        if not (self._image_token in text or self.tokenizer.chat_template is None):
            parts = [{"type": "image", "image": each} for each in given]
            texts = [{"type": "text", "text": text}] if text else []
            messages = [{"role": "user", "content": [*parts, *texts]}]
            chat = read_chat(messages, self._reader.files, self.max_characters)
            return self._input_of_chat(chat, request, parameters)
        self._check_placeholders(text, len(given))
        files = [self._reader.files.file(each, key) for each in given]
        # A stream cannot begin with the text of the prompt.
        stream = None if parameters.return_full_text else request.stream
        return ImagePromptInput(text, parameters, stream=stream, files=files)

    def _input_of_chat(
        self, chat: ImageChat, request: Request, parameters: GenerationParameters
    ) -> PromptInput:
        template = chat_template(self.tokenizer, parameters.offered_tools)
        spelled = chat.escaped([self._image_token, *self._media_tokens])
        turns = spelled.for_template(template, self._image_token)
        tools = parameters.offered_tools
        options = parameters.template_options
        prompt = prompt_of(turns, self.tokenizer, self.max_characters, tools, options)
        shown = prompt.count(self._image_token)
        if shown != len(chat.files):
            raise BadRequest(
                f"The model's chat template has {shown:,} images for the {len(chat.files):,} of"
                " these messages; send images in the messages of the user."
            )
        return ImagePromptInput(prompt, parameters, chat.messages, request.stream, files=chat.files)

    def _check_placeholders(self, text: str, images: int) -> None:
        """Check that a text has as many image tokens as there are images.

        Raises:
            BadRequest: it has not.
        """
        other = next((each for each in self._media_tokens if each in text), None)
        if other is not None:
            raise BadRequest(f"The text has {other}, which stands for a file; leave it out.")
        count = text.count(self._image_token)
        if count != images:
            raise BadRequest(
                f"The text has {self._image_token} {count:,} times, which stands for an image, and"
                f" comes with {images:,} images; send one for each image."
            )

    def _check_ids(self, prompt: TokenIds) -> None:
        """Check that no token stands for an image or another file.

        Raises:
            BadRequest: one does.
        """
        tokens = [self._image_token, *self._media_tokens]
        if not set(self.tokenizer.convert_tokens_to_ids(tokens)).isdisjoint(prompt.ids):
            raise BadRequest(
                "The prompt has the token of an image or another file; send a text or a chat."
            )

    def _row_of_images(self, item: PromptInput, files: Sequence[bytes]) -> list[Prompt]:
        """Return the row of a prompt with images.

        Raises:
            RequestError: a file is no image, or the prompt has too many tokens.
        """
        features = self._features(item, files)
        ids = features["input_ids"]
        if self.max_tokens is not None and len(ids) > self.max_tokens:
            raise TextTooLong(
                f"The prompt has {len(ids):,} tokens with those of its images, and this model takes"
                f" {self.max_tokens:,}; send fewer or smaller images."
            )
        if item.parameters.truncate and len(ids) > item.parameters.truncate:
            raise Unprocessable(
                f"truncate is {item.parameters.truncate:,}, and the prompt has {len(ids):,} tokens"
                " with those of its images, of which none is left out; raise truncate, or leave it"
                " out."
            )
        of_tokens = {name for name, array in features.items() if array.shape == ids.shape}
        media = {name: array for name, array in features.items() if name not in of_tokens}
        tokens = {name: features[name].tolist() for name in sorted(of_tokens - {"attention_mask"})}
        return [
            replace(prompt, media=media)
            for prompt in self._prompt(item, Window(tokens, Encoding()))
        ]

    def _features(
        self, item: PromptInput, files: Sequence[bytes]
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Return the model inputs; inputs of tokens lack the first dimension of a batch."""
        most = self.settings.max_image_pixels
        images = [read_image(file, "The image", most) for file in files]
        bos = self.tokenizer.bos_token
        # A chat template has the first token itself.
        begins = bool(bos and item.prompt.startswith(bos))
        adds = False if begins else item.parameters.add_special_tokens
        given = {} if adds is None else {"add_special_tokens": adds}
        try:
            found: Mapping[str, torch.Tensor] = self._processor(
                text=[item.prompt], images=[images], return_tensors="pt", **given
            )
        except ValueError as error:
            raise Unprocessable(
                f"The processor of this model does not take these images ({summarize(error)}); send"
                " other ones."
            ) from None
        ids = found["input_ids"]
        return {
            name: (tensor[0] if tensor.shape == ids.shape else tensor).numpy()
            for name, tensor in found.items()
        }


def _files(item: PromptInput) -> Sequence[bytes | RemoteFile]:
    return item.files if isinstance(item, ImagePromptInput) else ()


def image_token(processor: ProcessorMixin) -> str:
    """Return what stands for an image in a prompt.

    Raises:
        WrongCheckpoint: prompts of this model have no such token.
    """
    # Gemma 3 has one token for an image in prompts, and another one for each of its patches.
    found = (getattr(processor, name, None) for name in ("boi_token", "image_token"))
    token = next(filter(None, found), None)
    if token is None:
        raise WrongCheckpoint(
            "processor_config.json",
            f"is that of {type(processor).__name__}, whose prompts have no images",
            "serve a vision language model, such as LLaVA, Qwen2-VL or SmolVLM",
        )
    return str(token)


def _media_tokens(processor: ProcessorMixin, image_token: str) -> tuple[str, ...]:
    """Return what stands for files of other kinds, or for a part of an image, in a prompt."""
    names = ("image_token", "video_token", "audio_token")
    found = (getattr(processor, name, None) for name in names)
    return tuple(str(each) for each in found if each and str(each) != image_token)


def read_chat(given: Sequence[Any], files: MediaFiles, max_characters: int) -> ImageChat:
    """Return the messages of a chat, with texts and images as contents.

    Raises:
        RequestError: a message is malformed, too long, or has an image that cannot be read.
    """
    texts: list[Any] = []
    parts: list[Sequence[Mapping[str, str]] | None] = []
    found: list[bytes | RemoteFile] = []
    for at, message in enumerate(map(with_plain_parts, given)):
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, list):
            texts.append(message)
            parts.append(None)
            continue
        images = [_image_in(part, f"messages[{at}].content", files) for part in content]
        found += [image for image in images if image is not None]
        pairs = list(zip(content, images, strict=True))
        texts.append({**message, "content": [part for part, image in pairs if image is None]})
        parts.append([part if image is None else IMAGE_PART for part, image in pairs])
    return ImageChat(check_messages(texts, max_characters, len(found)), parts, found)


def _escaped(text: str, tokens: Sequence[str]) -> str:
    for token in tokens:
        text = text.replace(token, f"{token[0]}{ZERO_WIDTH_SPACE}{token[1:]}")
    return text


def _image_in(part: Any, name: str, files: MediaFiles) -> bytes | RemoteFile | None:
    """Return the file of a part that is an image; None for another part."""
    own = "image_url" if isinstance(part, Mapping) and "image_url" in part else None
    kind = part.get("type", own) if isinstance(part, Mapping) else None
    if kind in ("image_url", "input_image"):
        value = part.get("image_url")
        return files.file(value.get("url") if isinstance(value, Mapping) else value, name)
    if kind != "image":
        return None
    key = next((key for key in PART_KEYS if part.get(key) is not None), None)
    if key is None:
        raise BadRequest(f"{name} has an image without a file; send it under image or url.")
    return files.file(part[key], name)


def _turn(
    message: Message,
    parts: Sequence[Mapping[str, str]] | None,
    image_token: str,
    reads_parts: bool,
) -> dict[str, Any]:
    if not reads_parts:
        texts = [image_token if part is IMAGE_PART else part["text"] for part in parts or ()]
        return {**message, "content": "".join(texts) if parts else message["content"]}
    if message["role"] == "tool" or message.get("tool_calls"):
        return dict(message)
    text = {"type": "text", "text": message["content"]}
    return {**message, "content": [text] if parts is None else list(parts)}
