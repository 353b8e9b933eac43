"""The endpoint `images/generations`: a prompt to images.

    {"prompt": "a red circle", "n": 1, "size": "512x512", "response_format": "b64_json"}
    -> {"created": 1764000000, "data": [{"b64_json": "…"}], …}

Beside OpenAI's keys a body may have `seed`, `negative_prompt`, `num_inference_steps` and
`guidance_scale`, as the servers of open models have them. A stream has one event, the image; before
it there is a comment for each step, which keeps the connection open.

https://platform.openai.com/docs/api-reference/images/create
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from ...errors import RequestError, Unprocessable
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...http.streams import SERVER_SENT_EVENTS, HttpStepStream, event
from ...media.images import convert_png
from ...types.request import Request
from ..base import KeyTable, ParsedRequest, Route, ignored, refused
from .endpoint import Body, Call, Endpoint
from .errors import KeyNeedsAnother
from .types import ImageEvent, ImageFormat, ImagesResponse, OpenAIError

EXTENSIONS = ("negative_prompt", "num_inference_steps", "guidance_scale", "seed")
EXAMPLE = {"prompt": "a red circle", "num_inference_steps": 20, "seed": 1}
AS_ONE_EVENT = """\
With `stream: true` the answer is a server-sent event; a comment before it for each step keeps the \
connection open."""
Percent = Annotated[int, Field(ge=0, le=100)]


# What sentences of the task call the `size`.
SIZE = re.compile("height|pixels")


class ImageBody(Body):
    """The body of `images/generations`."""

    prompt: str
    n: PositiveInt | None = None
    size: Annotated[str, Field(pattern=r"^(auto|[0-9]{1,5}x[0-9]{1,5})$")] | None = None
    response_format: Literal["b64_json", "url"] | None = None
    output_format: ImageFormat | None = None
    output_compression: Percent | None = None
    background: Literal["auto", "opaque", "transparent"] | None = None
    stream: bool | None = None
    partial_images: Annotated[int, Field(ge=0, le=3)] | None = None
    seed: int | None = None
    negative_prompt: str | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None

    def check_supported(self) -> None:
        if self.response_format == "url":
            raise Unprocessable(
                "response_format url cannot be done by this server, which stores no images; set it"
                " to b64_json."
            )
        if self.background == "transparent":
            raise Unprocessable(
                "background transparent cannot be done by this server; leave it out."
            )
        if self.stream and (self.n or 1) > 1:
            raise Unprocessable(
                f"n is {self.n}, and a stream has one image; leave n out, or stream."
            )
        if self.output_compression not in (None, 100) and self.output_format in (None, "png"):
            raise KeyNeedsAnother("output_compression", "output_format: jpeg or webp")
        if self.partial_images:
            raise Unprocessable("partial_images cannot be done by this server; leave it out.")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the text-to-image task."""
        given = {name: getattr(self, name) for name in EXTENSIONS}
        given["num_images_per_prompt"] = self.n
        if self.size not in (None, "auto"):
            width, height = str(self.size).split("x")
            given |= {"width": int(width), "height": int(height)}
        return {name: value for name, value in given.items() if value is not None}


class Images(Endpoint[ImageBody]):
    """`images/generations`: the images of a prompt."""

    route = Route(
        "v1/images/generations",
        name="images",
        server="OpenAI",
        summary="Make images of a prompt.",
        response=ImagesResponse,
        error=OpenAIError,
        abilities=("generates_images",),
        body=ImageBody,
        keys=KeyTable.of(
            ImageBody,
            # Hints to OpenAI's own models.
            ignored("user", "quality", "style", "moderation", "safety_identifier"),
            refused(reasoning=[], svg=[]),
        ),
        examples=lambda _: {
            "one": {**EXAMPLE, "response_format": "b64_json"},
            "several": {**EXAMPLE, "n": 2, "output_format": "webp"},
            "stream": {**EXAMPLE, "stream": True},
        },
        description=AS_ONE_EVENT,
        stream=SERVER_SENT_EVENTS,
        part=ImageEvent,
    )
    inputs_key = "prompt"

    def parsed_request(self, http_request: HttpRequest, body: ImageBody) -> ParsedRequest:
        progress = HttpStepStream(http_request, _comment) if body.stream else None
        request = Request(body.prompt, body.parameters, progress=progress)
        return ParsedRequest(http_request, [request], Call(self, body))

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        body: ImageBody = parsed.context.body
        files = [self._file(image["image"], body) for image in results[0]]
        created, output_format, size = int(time.time()), body.output_format or "png", body.size
        if body.stream:
            completed: ImageEvent = {
                "type": "image_generation.completed",
                "b64_json": files[0],
                "created_at": created,
                "background": "opaque",
                "quality": "auto",
                "output_format": output_format,
                "size": size or "auto",
            }
            return SERVER_SENT_EVENTS.response(event(completed, completed["type"]))
        response: ImagesResponse = {
            "created": created,
            "data": [{"b64_json": file} for file in files],
            "seeds": [image["seed"] for image in results[0]],
            "output_format": output_format,
            "size": size or "auto",
        }
        return HttpResponse(encode_json(response))

    def key_of(self, sentence: str, body: ImageBody) -> str | None:
        return "size" if SIZE.search(sentence) else None

    def last_event(self, parsed: ParsedRequest, error: RequestError) -> bytes:
        return event(self.error_body(error), "error")

    def _file(self, image: str, body: ImageBody) -> str:
        """Return a PNG file in base64 in the format of a body."""
        if body.output_format in (None, "png"):
            return image
        file = convert_png(image, f"image/{body.output_format}", body.output_compression)
        return base64.b64encode(file).decode("ascii")


def _comment(step: int, steps: int) -> bytes:
    """Return a comment of a stream, which clients read over."""
    return f": step {step} of {steps}\n\n".encode()
