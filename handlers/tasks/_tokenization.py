"""Tokenizes texts and chats without running the model, and decodes token ids."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from handlers.batching.tokenization import has_offsets, tokenize
from handlers.errors import BadRequest, TextTooLong, Unprocessable
from handlers.generation.chat import TemplateOptions, check_messages, prompt_of
from handlers.generation.parameters import MAX_TEMPLATE_ARGUMENTS
from handlers.tasks._text import TextTask
from handlers.tasks.base import BaseTask
from handlers.types.parameters import Parameters
from handlers.types.request import Request, TokenIds, TokenizedText
from handlers.types.text_checks import check_text, json_type

IDS_ONLY: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": False}


class TokenizationParameters(Parameters):
    """Parameters of one text or chat to tokenize."""

    add_special_tokens: bool | None = None
    """Adds the tokenizer's special tokens. By default to a text; chat templates have their own."""
    add_generation_prompt: bool | None = None
    """Ends the prompt of a chat where the assistant's message begins. By default, unless the last
    message is continued."""
    continue_final_message: bool = False
    """Ends the prompt of a chat within its last message."""
    chat_template_kwargs: dict[str, Any] = Field(default={}, max_length=MAX_TEMPLATE_ARGUMENTS)
    """Arguments of the chat template."""


class DetokenizationParameters(Parameters):
    """Parameters of one list of token ids."""

    skip_special_tokens: bool = False
    """Leaves the special tokens out."""


def tokenize_request(task: BaseTask[Any, Any], request: Request) -> TokenizedText:
    """Return the tokens of a request, whose inputs are a text or the messages of a chat.

    Raises:
        RequestError: the inputs or parameters are wrong, or there are more tokens than a text may
            have characters.
    """
    task = _require_tokenizer(task)
    parameters = TokenizationParameters.of_request({}, request.parameters)
    is_chat = isinstance(request.inputs, list)
    text = _text_of(task, request.inputs, parameters)
    adds_special = parameters.add_special_tokens
    options: dict[str, Any] = {
        "add_special_tokens": not is_chat if adds_special is None else adds_special,
        **IDS_ONLY,
    }
    encoding = tokenize(task.tokenizer, [(text, None)], **options)[0]
    if len(encoding) > task.max_characters:
        raise TextTooLong(
            f"The text has {len(encoding):,} tokens, and this model takes"
            f" {task.max_characters:,} characters; send less."
        )
    ids = np.array(encoding.ids, dtype=np.int64)
    special = _special_tokens(task, set(encoding.ids))
    if not has_offsets(encoding):
        names = task.tokenizer.convert_ids_to_tokens(encoding.ids)
        return TokenizedText(text, ids, None, special, list(map(str, names)))
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    return TokenizedText(text, ids, offsets, special)


def detokenize_request(task: BaseTask[Any, Any], request: Request) -> str:
    """Return the text of a request's :class:`TokenIds`.

    Raises:
        BadRequest: there are none, one is not in the vocabulary, or a parameter is wrong.
        RequestTooLarge: there are more than a text may have characters.
    """
    task, ids = _require_tokenizer(task), request.inputs
    parameters = DetokenizationParameters.of_request({}, request.parameters)
    if not isinstance(ids, TokenIds):
        raise BadRequest(f"tokens must be a list of token ids, and is {json_type(ids)}.")
    ids.check_length(task.max_characters)
    ids.check(task.checkpoint.vocab_size)
    options = {**parameters.model_dump(), "clean_up_tokenization_spaces": False}
    return str(task.tokenizer.decode(list(ids.ids), **options))


def _require_tokenizer(task: BaseTask[Any, Any]) -> TextTask[Any, Any]:
    """Return a task that reads texts.

    Raises:
        Unprocessable: it reads something else.
    """
    if not isinstance(task, TextTask):
        raise Unprocessable(f"This model's mode is {task.settings.mode}; it has no tokenizer.")
    return task


def _text_of(task: TextTask[Any, Any], inputs: Any, parameters: TokenizationParameters) -> str:
    """Return a text, or the prompt of a chat."""
    limit = task.max_characters
    if not isinstance(inputs, list):
        return check_text(inputs, "inputs", limit)
    begins, continues = parameters.add_generation_prompt, parameters.continue_final_message
    options = TemplateOptions(
        not continues if begins is None else begins, continues, parameters.chat_template_kwargs
    )
    return prompt_of(check_messages(inputs, limit), task.tokenizer, limit, options=options)


def _special_tokens(task: TextTask[Any, Any], ids: set[int]) -> dict[int, str]:
    """Return the names of the special tokens among ids; an unknown character is none of them."""
    tokenizer = task.tokenizer
    special = ids.intersection(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return {number: str(tokenizer.convert_ids_to_tokens(number)) for number in special}
