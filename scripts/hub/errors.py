"""The errors of a model download.

HubError
├── HubUnreachable   no response, or the connection was lost
├── ProxyUnsupported a proxy needs a package
├── HubOffline       HF_HUB_OFFLINE is set
├── NotAHub          the endpoint is not a model hub
├── UnsafeListing    a listed file is not a path of a repository
├── ModelNotFound    no such model, or a private one
├── RevisionNotFound no such branch, tag or commit
├── AccessDenied     a gated model, or an invalid token
├── HubFailed        any other error status
└── CorruptFile      a downloaded file has the wrong size or hash
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import getproxies

import httpx
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from hf_serve.handlers.errors import KitError, WrongConfig, summarize
from hf_serve.scripts.installation import command_line

ALTERNATIVE = f"`{command_line('demo-models')}` makes small models without a hub"


class HubError(KitError):
    """A model cannot be downloaded."""


class HubUnreachable(HubError):
    """The hub does not respond."""

    # Without the model, so that several models with this error have one sentence.
    def __init__(self, endpoint: str, cause: Exception) -> None:
        super().__init__(
            f"The hub at {endpoint} cannot be reached ({summarize(cause, 300)}); run the command"
            " again to resume, set HF_ENDPOINT to a hub that is reachable, or name a folder that"
            f" exists; {ALTERNATIVE}."
        )


class ProxyUnsupported(HubError):
    """A proxy of the environment needs a package that is not installed."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(
            "The environment names a proxy for the hub in ALL_PROXY or HTTPS_PROXY"
            f" ({summarize(cause)}); run `pip install socksio`, or name a proxy of HTTP there."
        )

    @classmethod
    def explain(cls, cause: ImportError) -> Exception:
        """Return the error to raise: this one if a proxy is one of SOCKS, else the cause."""
        has_socks = any(each.startswith("socks") for each in getproxies().values())
        return cls(cause) if has_socks else cause


class HubOffline(HubError):
    """A download is required, but HF_HUB_OFFLINE is set."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"{model} is not downloaded and HF_HUB_OFFLINE is set; unset it to download;"
            f" {ALTERNATIVE}."
        )


class NotAHub(HubError):
    """The endpoint responds, but is not a model hub."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(
            f"The server at {endpoint} does not list a model's files with sizes and hashes as"
            " the Hugging Face hub does; set HF_ENDPOINT to a model hub."
        )


class UnsafeListing(HubError):
    """The endpoint lists a file whose name is not a path below the root of a repository."""

    def __init__(self, endpoint: str, model: str, name: object) -> None:
        super().__init__(
            f"The hub at {endpoint} lists the file {name!a:.80} for {model}, which is not a path"
            " below the root of a repository; nothing was downloaded; set HF_ENDPOINT to a hub that"
            " you trust."
        )


class ModelNotFound(HubError):
    """The model does not exist or is private."""

    def __init__(self, endpoint: str, model: str) -> None:
        super().__init__(
            f"{model} is no folder here, and the hub at {endpoint} has no such model, or it is"
            " private; correct the name, or set HF_TOKEN if the model is private."
        )


class RevisionNotFound(HubError):
    """The model has no such branch, tag or commit."""

    def __init__(self, model: str, revision: str | None) -> None:
        super().__init__(
            f"{model} has no revision {revision or 'main'}; set handler.revision to a branch, a tag"
            " or a commit of the model."
        )


class AccessDenied(HubError):
    """The hub denies this user access to the model."""

    def __init__(self, endpoint: str, model: str) -> None:
        super().__init__(
            f"The hub denies access to {model}; request access at {endpoint}/{model} and set"
            " HF_TOKEN to a token of an account that has access."
        )


class HubFailed(HubError):
    """The hub responds with an unexpected error status."""

    def __init__(self, endpoint: str, status: int) -> None:
        super().__init__(
            f"The hub at {endpoint} responded with status {status}; run the command again later."
        )


class CorruptFile(HubError):
    """A downloaded file has the wrong size or hash."""

    def __init__(self, model: str, file: str) -> None:
        super().__init__(
            f"The download of {file} of {model} was corrupt and was deleted; run the command again."
        )


@contextmanager
def hub_errors(endpoint: str, model: str, revision: str | None) -> Iterator[None]:
    """Convert exceptions of huggingface_hub and httpx to HubError."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise HubOffline(model) from None
    except GatedRepoError:
        raise AccessDenied(endpoint, model) from None
    except RepositoryNotFoundError:
        raise ModelNotFound(endpoint, model) from None
    except RevisionNotFoundError:
        raise RevisionNotFound(model, revision) from None
    except HFValidationError:
        raise WrongConfig(
            "handler.model_name",
            f"is {model!r}, which is no folder here and no id of a hub",
            "correct the path, or give an id such as org/name",
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise AccessDenied(endpoint, model) from None
        raise HubFailed(endpoint, status) from None
    except ImportError as error:
        raise ProxyUnsupported.explain(error) from None
    except (httpx.RequestError, httpx.InvalidURL) as error:
        raise HubUnreachable(endpoint, error) from None
