"""What a request says about the chat template beside the messages and the tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from typing import Any

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
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
    """Return whether a template reads an argument; its text and its comments do not count."""
    return name in _variables(template)


def knows_role(template: str, role: str) -> bool:
    """Return whether a template compares something with the name of a role."""
    return role in _constants(template)


class _Generation(Extension):
    """The tag that transformers adds around the texts of an assistant."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=32)
def _variables(template: str) -> frozenset[str]:
    """Return the names of the variables that a template does not set itself."""
    return frozenset(find_undeclared_variables(_parsed(template)))


@lru_cache(maxsize=32)
def _constants(template: str) -> frozenset[str]:
    """Return the texts in the code of a template."""
    constants = _parsed(template).find_all(nodes.Const)
    return frozenset(each.value for each in constants if isinstance(each.value, str))


def _parsed(template: str) -> nodes.Template:
    """Return the syntax tree of a template; an empty one where it cannot be rendered, either."""
    environment = Environment(autoescape=True, extensions=["jinja2.ext.loopcontrols", _Generation])
    try:
        return environment.parse(template)
    except TemplateSyntaxError:
        return environment.parse("")
