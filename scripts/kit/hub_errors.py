"""What can go wrong between this machine and a model hub, and the sentence for each.

HubError
├── HubUnreachable   no answer, or the connection was lost
├── HubOffline   HF_HUB_OFFLINE is set
├── NotAHub          something else answers there
├── ModelNotFound    no such model, or none that may be seen
├── RevisionNotFound no such branch, tag or commit
├── AccessRefused    a gated model, or a wrong token
├── HubFailed        any other status
└── DamagedFile      a file did not arrive as the hub describes it
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from handlers.errors import KitError, WrongConfig, summarize

INSTEAD = "`python scripts/make_demo_models.py` makes small models here without a hub"


class HubError(KitError):
    """A model cannot be downloaded."""


class HubUnreachable(HubError):
    """No answer from the hub."""

    def __init__(self, endpoint: str, cause: Exception) -> None:
        super().__init__(
            f"The hub at {endpoint} cannot be reached ({summarize(cause, 300)}); run the command"
            " again, it goes on where it stopped, or set HF_ENDPOINT to a hub that answers;"
            f" {INSTEAD}."
        )


class HubOffline(HubError):
    """The hub is needed, but the environment forbids it."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"{model} is not here yet and HF_HUB_OFFLINE is set; unset it to download; {INSTEAD}."
        )


class NotAHub(HubError):
    """The endpoint answers, but not as a hub does."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(
            f"What answers at {endpoint} does not list a model's files with sizes and hashes as"
            " the Hugging Face hub does; set HF_ENDPOINT to one that does."
        )


class ModelNotFound(HubError):
    """No such model on the hub, or a private one."""

    def __init__(self, endpoint: str, model: str) -> None:
        super().__init__(
            f"The hub at {endpoint} has no model {model} for you; mend handler.model_name, or set"
            " HF_TOKEN if the model is private."
        )


class RevisionNotFound(HubError):
    """The model has no such branch, tag or commit."""

    def __init__(self, model: str, revision: str | None) -> None:
        super().__init__(
            f"{model} has no revision {revision or 'main'}; set handler.revision to a branch, a tag"
            " or a commit of it."
        )


class AccessRefused(HubError):
    """The hub knows the model, but does not give it to this user."""

    def __init__(self, endpoint: str, model: str) -> None:
        super().__init__(
            f"The hub refuses {model}; ask for access at {endpoint}/{model} and set HF_TOKEN to a"
            " token of an account that has it."
        )


class HubFailed(HubError):
    """The hub answers with an error of its own."""

    def __init__(self, endpoint: str, status: int) -> None:
        super().__init__(f"The hub at {endpoint} answered {status}; run the command again later.")


class DamagedFile(HubError):
    """A file's size or hash is not what the hub says."""

    def __init__(self, model: str, file: str) -> None:
        super().__init__(
            f"{file} of {model} did not arrive whole and was thrown away; run the command again."
        )


@contextmanager
def hub_errors(endpoint: str, model: str, revision: str | None) -> Iterator[None]:
    """Turn what huggingface_hub and httpx raise inside into errors of this kit."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise HubOffline(model) from None
    except GatedRepoError:
        raise AccessRefused(endpoint, model) from None
    except RepositoryNotFoundError:
        raise ModelNotFound(endpoint, model) from None
    except RevisionNotFoundError:
        raise RevisionNotFound(model, revision) from None
    except HFValidationError:
        raise WrongConfig(
            "handler.model_name", f"is {model!r}", "give an id such as org/name, or a folder"
        ) from None
    except HfHubHTTPError as error:
        raise _of_status(endpoint, model, error.response.status_code) from None
    except httpx.TransportError as error:
        raise HubUnreachable(endpoint, error) from None


def _of_status(endpoint: str, model: str, status: int) -> HubError:
    return AccessRefused(endpoint, model) if status in (401, 403) else HubFailed(endpoint, status)
