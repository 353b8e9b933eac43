"""The way of a TorchServe batch: posts -> protocols -> engine -> the same protocols -> answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from handlers.answer import Answer
from handlers.attempts import attempt
from handlers.bodies import Post
from handlers.engine import Engine
from handlers.errors import RequestError
from handlers.meter import Meter
from handlers.pages.explanation import HTML, prefers_page, render
from handlers.protocols.base import BaseProtocol, in_place
from handlers.registry import protocols
from handlers.requests import Request


@dataclass(frozen=True)
class Turn:
    """A post, who reads and writes it, and what it asks; `mistake` says why it asks nothing."""

    post: Post
    protocol: BaseProtocol
    requests: list[Request]
    mistake: RequestError | None = None


class Dialogue:
    """Answers the posts of one model."""

    def __init__(self, engine: Engine, name: str = "model", version: str = "1.0") -> None:
        self._engine = engine
        self._protocols = protocols(engine.describe(name, version))

    def answer(self, posts: Sequence[Post], meter: Meter) -> list[Answer]:
        """Return an answer for each post; predictions and explanations may share a batch."""
        with meter.stage("read"):
            turns = [self._hear(post) for post in posts]
        outcomes = self._outcomes(turns, meter)
        with meter.stage("write"):
            answers = [_reply(*each) for each in zip(turns, outcomes, strict=True)]
        errors = sum(answer.status >= 400 for answer in answers)
        meter.count(requests=len(posts), errors=errors)
        return answers

    def _hear(self, post: Post) -> Turn:
        protocol = attempt(self._recognise, post)
        if isinstance(protocol, RequestError):
            return Turn(post, self._protocols[-1], [], protocol)
        requests = attempt(protocol.read, post)
        if isinstance(requests, RequestError):
            return Turn(post, protocol, [], requests)
        return Turn(post, protocol, requests)

    def _recognise(self, post: Post) -> BaseProtocol:
        return next(known for known in self._protocols if known.recognises(post))

    def _outcomes(self, turns: Sequence[Turn], meter: Meter) -> list[list[Any]]:
        """Return the outcomes of each turn's requests; all turns of a kind go through together."""
        predictions = self._engine.predict(_requests(turns, explains=False), meter)
        explanations = self._engine.explain(_requests(turns, explains=True), meter)
        sources = {False: iter(predictions), True: iter(explanations)}
        return [[next(sources[turn.post.explains]) for _ in turn.requests] for turn in turns]


def _requests(turns: Sequence[Turn], *, explains: bool) -> list[Request]:
    chosen = (turn.requests for turn in turns if turn.post.explains == explains)
    return list(chain.from_iterable(chosen))


def _reply(turn: Turn, outcomes: Sequence[Any]) -> Answer:
    if turn.mistake:
        return turn.protocol.refuse(turn.post, turn.mistake)
    reply = attempt(_write, turn, outcomes)
    return turn.protocol.refuse(turn.post, reply) if isinstance(reply, RequestError) else reply


def _write(turn: Turn, outcomes: Sequence[Any]) -> Answer:
    as_page = turn.post.explains and prefers_page(turn.post.header("accept"))
    if as_page and not all(isinstance(outcome, RequestError) for outcome in outcomes):
        told = turn.protocol.places(turn.post, outcomes)
        return Answer(render([in_place(each) for each in told]), content_type=HTML)
    return turn.protocol.write(turn.post, turn.requests, outcomes)
