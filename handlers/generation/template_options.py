"""What a request says about the chat template beside the messages and the tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from typing import Any

from jinja2 import Environment
from jinja2.exceptions import TemplateSyntaxError
from transformers import PreTrainedTokenizerBase

from handlers.config.quoting import quote
from handlers.errors import BadRequest, Unprocessable

# What a template gets from elsewhere.
RESERVED = frozenset(
    {"messages", *signature(PreTrainedTokenizerBase.apply_chat_template).parameters} - {"kwargs"}
)


@dataclass(frozen=True)
class TemplateOptions:
    """What a chat template gets beside the messages and the tools.

    Attributes:
        add_generation_prompt: whether the prompt ends where the assistant's message begins.
        continue_final_message: whether it ends within the last message, which the text goes on.
        arguments: further arguments; those that it does not read change nothing.
        required: those that it has to read.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)

    def check(self, template: str) -> None:
        """Check that a template can have the arguments.

        Raises:
            BadRequest: they exclude one another, or one has the name of something else.
            Unprocessable: the template does not read one that it has to.
        """
        if self.add_generation_prompt and self.continue_final_message:
            raise BadRequest(
                "continue_final_message and add_generation_prompt exclude one another; set one of"
                " them."
            )
        taken = next((name for name in self.arguments if name in RESERVED), None)
        if taken is not None:
            raise BadRequest(
                f"chat_template_kwargs has {quote(taken)}, which is not for the template; leave it"
                " out."
            )
        unread = next((name for name in self.required if not reads(template, name)), None)
        if unread is not None:
            raise Unprocessable(
                f"The chat template of this model does not read {unread}; leave it out."
            )

    @property
    def for_template(self) -> dict[str, Any]:
        """The arguments of `apply_chat_template`."""
        return {
            **self.arguments,
            **self.required,
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": self.continue_final_message,
        }


def reads(template: str, name: str) -> bool:
    """Return whether the code of a template has a name, or a text that is this name.

    What a template writes and its comments have other words, such as those of a system message.
    """
    return name in _words(template)


@lru_cache(maxsize=32)
def _words(template: str) -> frozenset[str]:
    """Return the names in the code of a template, and the texts without their quotes."""
    try:
        tokens = list(Environment(autoescape=True).lex(template))
    except TemplateSyntaxError:
        return frozenset()  # It cannot be rendered, either.
    names = {value for _, kind, value in tokens if kind == "name"}
    return frozenset(names | {value[1:-1] for _, kind, value in tokens if kind == "string"})
