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
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PositiveInt

from handlers.errors import RequestError, Unprocessable
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.http.server_sent_events import EVENTS, StepEventStream, event
from handlers.media.images import convert_png
from handlers.protocols.base import Exchange, check_not_explained
from handlers.protocols.openai.errors import error_body
from handlers.protocols.openai.keys import TABLES
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.parameters import WholeNumbers, parse_body
from handlers.schemas.request import Request

EXTENSIONS = ("negative_prompt", "num_inference_steps", "guidance_scale", "seed")
COMPLETED = "image_generation.completed"
Percent = Annotated[int, Field(ge=0, le=100)]


class ImageBody(WholeNumbers):
    """The body of `images/generations`; unknown keys are ignored, and so are quality and style."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )

    model: str | None = None
    prompt: str
    n: PositiveInt | None = None
    size: Annotated[str, Field(pattern=r"^(auto|[0-9]{1,5}x[0-9]{1,5})$")] | None = None
    response_format: Literal["b64_json", "url"] | None = None
    output_format: Literal["png", "jpeg", "webp"] | None = None
    output_compression: Percent | None = None
    background: Literal["auto", "opaque", "transparent"] | None = None
    stream: bool | None = None
    partial_images: Annotated[int, Field(ge=0, le=3)] | None = None
    seed: int | None = None
    negative_prompt: str | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None

    def check_supported(self) -> None:
        """Check that this server can do what the body asks for.

        Raises:
            Unprocessable: it cannot.
        """
        if self.response_format == "url":
            raise Unprocessable(
                "This server stores no images, so it has no URLs of them; set response_format to"
                " b64_json."
            )
        if self.background == "transparent":
            raise Unprocessable("Images have no transparent background; leave background out.")
        if self.stream and (self.n or 1) > 1:
            raise Unprocessable("A stream has one image; leave n out, or stream.")
        if self.partial_images:
            raise Unprocessable("A stream has whole images alone; leave partial_images out.")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the text-to-image task."""
        given = {name: getattr(self, name) for name in EXTENSIONS}
        given["num_images_per_prompt"] = self.n
        if self.size not in (None, "auto"):
            width, height = str(self.size).split("x")
            given |= {"width": int(width), "height": int(height)}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class ImageContext:
    """What the endpoint needs to write a response."""

    endpoint: Images
    body: ImageBody


class Images:
    """`images/generations`: the images of a prompt."""

    path: ClassVar[str] = "images/generations"
    inputs_key: ClassVar[str] = "prompt"

    def __init__(self, model: ModelInfo) -> None:
        self.model = model

    def parse(self, http_request: HttpRequest) -> Exchange:
        """Parse a request.

        Raises:
            RequestError: it cannot be understood, or this model cannot do it.
        """
        if not self.model.draws:
            raise Unprocessable(f"This model's mode is {self.model.mode}; it makes no images.")
        check_not_explained(http_request, self.path)
        http_request = TABLES[self.path].check(http_request)
        body = parse_body(ImageBody, http_request.content)
        body.check_supported()
        progress = StepEventStream(http_request, _comment) if body.stream else None
        request = Request(body.prompt, body.parameters, progress=progress)
        return Exchange(http_request, [request], ImageContext(self, body))

    def write(self, exchange: Exchange, results: Sequence[Any]) -> HttpResponse:
        """Return the response, from the result of the request."""
        body: ImageBody = exchange.context.body
        files = [self._file(image["image"], body) for image in results[0]]
        facts = {"output_format": body.output_format or "png", "size": body.size or "auto"}
        if body.stream:
            completed = {
                "type": COMPLETED,
                "b64_json": files[0],
                "created_at": int(time.time()),
                "background": "opaque",
                "quality": "auto",
                **facts,
            }
            return HttpResponse(event(completed, COMPLETED), content_type=EVENTS)
        data = [{"b64_json": file} for file in files]
        seeds = [image["seed"] for image in results[0]]
        return HttpResponse(
            encode_json({"created": int(time.time()), "data": data, "seeds": seeds, **facts})
        )

    def last_event(self, exchange: Exchange, error: RequestError) -> bytes:
        """Return the event of an error that ends a stream."""
        return event(error_body(error), "error")

    def _file(self, image: str, body: ImageBody) -> str:
        """Return a PNG file in base64 in the format of a body."""
        if body.output_format in (None, "png"):
            return image
        file = convert_png(image, f"image/{body.output_format}", body.output_compression)
        return base64.b64encode(file).decode("ascii")


def _comment(step: int, steps: int) -> bytes:
    """Return a comment of a stream, which clients read over."""
    return f": step {step} of {steps}\n\n".encode()
