"""Load a new version of a model, try it, make it the default, and go back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from hf_serve.handlers.errors import KitError
from hf_serve.scripts.archives.model_store import packed_version, versioned, write_default
from hf_serve.scripts.archives.verification import SignedStore
from hf_serve.scripts.command_line import counted
from hf_serve.scripts.installation import command_line
from hf_serve.scripts.paths import MODEL_STORE
from hf_serve.scripts.serving.tokens import Tokens

SUFFIXES = (".mar", ".tar.gz", "")
# A version loads its model, which can take minutes.
LOAD_SECONDS, CALL_SECONDS = 600.0, 60.0
INTERVAL = 0.2
NOT_FOUND, NOT_ALLOWED = 404, 405
# Seconds for which the requests to a version are counted, at least.
MIN_LOOK = 1.0
# TorchServe's counter has `default` as the version where a request names none.
COUNT = re.compile(r"^ts_inference_requests_total\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


class RolloutFailed(KitError):
    """A step of a rollout failed; the sentence says what the server does now."""


@dataclass(frozen=True)
class Rollout:
    """A rollout of one model.

    Attributes:
        management_url: its management address, which has to allow registration.
        say: is called with each step.
        signed: the store of a server with a key: an archive is checked before it is registered.
    """

    model: str
    store: Path
    inference_url: str
    management_url: str
    metrics_url: str
    tokens: Tokens
    say: Callable[[str], None] = print
    client: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False))
    signed: SignedStore | None = None

    def to(
        self,
        version: str,
        *,
        sample: Any = None,
        requests: int = 20,
        watch: float = 10.0,
        retire: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Make a version of the store the default.

        The version is loaded in addition to the default one, and answers the sample several times.
        Then it becomes the default, and is watched. If it fails, the former default is the default
        again.

        Args:
            version: the version of an archive `MODEL@VERSION.mar` in the store.
            sample: the body of a request; by default the sample of the model's mode.
            requests: how many requests the version has to answer before it is the default.
            watch: seconds for which it is watched afterwards.
            force: whether it is unloaded although clients may ask for it.

        Raises:
            RolloutFailed: a step failed. The former version is the default, unless only its
                unloading failed.
            KitError: the server has a key, and the archive is not signed with it.
        """
        former = self.default()
        file, workers = self._archive(version), int(former["minWorkers"])
        old = str(former["modelVersion"])
        if old == version:
            raise RolloutFailed(f"{self.model} {version} is the default already.")
        steps = [
            f"load {file} with {counted(workers, 'worker')} beside {old}",
            f"send {requests} requests to {version}",
            f"make {version} the default, and watch it for {watch:g} s",
            *([f"unload {old}"] if retire else []),
        ]
        if dry_run:
            for step in steps:
                self.say(f"would {step}")
            return
        sample = self._sample(old) if sample is None else sample
        is_new = version not in self.versions()
        self.say(steps[0])
        self._register(file, version, workers)
        try:
            self.say(steps[1])
            self._try(version, sample, requests)
        except RolloutFailed:
            if is_new:
                self._unload(version)
            raise
        self.say(steps[2])
        try:
            self.set_default(version)
            self._watch(version, sample, watch)
        except RolloutFailed as error:
            self.set_default(old)
            if is_new:
                self._unload(version)
            raise RolloutFailed(f"{error} {old} is the default again.") from None
        if retire:
            self.say(steps[3])
            self.retire(old, watch, force=force)

    def retire(self, version: str, watch: float = 10.0, *, force: bool = False) -> None:
        """Unload a version, unless clients ask for it by its number.

        Args:
            version: a version that is loaded and is not the default.
            watch: seconds for which the requests that name the version are counted.
            force: whether they are not counted.

        Raises:
            RolloutFailed: it is the default, clients ask for it, or TorchServe counts no requests.
        """
        if self.default()["modelVersion"] == version:
            raise RolloutFailed(
                f"{self.model} {version} is the default; make another version the default first."
            )
        self._require_loaded(version)
        if not force:
            self._check_unasked(version, watch)
        self._unload(version)

    def _check_unasked(self, version: str, seconds: float) -> None:
        before, seconds = self._asked(version), max(seconds, MIN_LOOK)
        time.sleep(seconds)
        if asked := self._asked(version) - before:
            raise RolloutFailed(
                f"{self.model} {version} stays loaded: clients sent it {asked:g} requests in"
                f" {seconds:g} s. Give them an address that follows the default version, such as"
                f" /models/{self.model}/invoke?path=/v1/, then run"
                f" `{command_line('rollout', 'retire', self.model, version)}`."
            )

    def _asked(self, version: str) -> float:
        """Return how many requests have named a version; others count for the default."""
        answer = self._call("GET", self.metrics_url)
        counts = COUNT.findall(answer.text) if answer.is_success else []
        if not counts:
            raise RolloutFailed(
                f"{self.metrics_url} counts no requests, so whether clients ask for {self.model}"
                f" {version} is unknown, and it stays loaded; set metrics_mode=prometheus in"
                " config.properties, or unload it with --force."
            )
        own = (self.model, version)
        return sum(float(count) for labels, count in counts if _labels(labels) == own)

    def back(self, version: str) -> None:
        """Make a version that is loaded the default at once.

        Raises:
            RolloutFailed: it is not loaded, or TorchServe refuses.
        """
        self.default()
        self._require_loaded(version)
        self.set_default(version)

    def _require_loaded(self, version: str) -> None:
        if version not in (loaded := self.versions()):
            raise RolloutFailed(
                f"{self.model} {version} is not loaded; {', '.join(loaded)} is. Load it with"
                f" `{command_line('rollout', 'to', self.model, version)}`."
            )

    def set_default(self, version: str) -> None:
        """Make a loaded version the default, and write it into the store.

        Raises:
            RolloutFailed: TorchServe refuses.
        """
        self._manage("PUT", f"/models/{self.model}/{version}/set-default")
        write_default(self.store, self.model, version)

    def default(self) -> Mapping[str, Any]:
        """Return TorchServe's description of the default version.

        Raises:
            RolloutFailed: the server does not answer, or does not serve the model.
        """
        path = f"/models/{self.model}"
        answer = self._management("GET", path)
        if answer.status_code == NOT_FOUND:
            listed = self._manage("GET", "/models").json()["models"]
            names = sorted({str(each["modelName"]) for each in listed})
            raise RolloutFailed(
                f"The server has no model {self.model}; there are {', '.join(names) or 'none'}."
            )
        (found,) = _require_success(answer, f"GET {path}").json()
        return dict(found)

    def versions(self) -> Sequence[str]:
        """Return the versions that are loaded."""
        found = self._manage("GET", f"/models/{self.model}/all").json()
        return [str(each["modelVersion"]) for each in found]

    def _archive(self, version: str) -> str:
        stem = versioned(self.model, version)
        for suffix in SUFFIXES:
            if (self.store / f"{stem}{suffix}").exists():
                return f"{stem}{suffix}"
            if packed_version(self.store / f"{self.model}{suffix}") == version:
                return f"{self.model}{suffix}"
        is_usual = self.store.resolve() == MODEL_STORE.resolve()
        to = [] if is_usual else ["--export-path", self.store]
        command = command_line(
            "pack", f"{self.model}.yaml", "--version", version, "--versioned", *to
        )
        raise RolloutFailed(f"{self.store} has no {stem}.mar; pack it with `{command}`.")

    def _register(self, file: str, version: str, workers: int) -> None:
        if version in self.versions():
            return
        parameters = {
            "url": self.signed.add(file) if self.signed else file,
            "model_name": self.model,
            "initial_workers": str(workers),
            "synchronous": "true",
        }
        try:
            self._manage("POST", "/models", params=parameters, timeout=LOAD_SECONDS)
        except RolloutFailed as error:
            if version in self.versions():
                self._unload(version)
            raise RolloutFailed(f"{self.model} {version} was not loaded: {error}") from None

    def _sample(self, version: str) -> Any:
        """Return the sample of the model's mode, which the handler tells."""
        description = self.default()
        if description.get("continuousBatching"):
            raise RolloutFailed(_NO_SAMPLE)
        path = f"/models/{self.model}/{version}"
        (found,) = self._manage("GET", path, params={"customized": "true"}).json()
        sample = (found.get("customizedMetadata") or {}).get("sample")
        if not sample:
            raise RolloutFailed(_NO_SAMPLE)
        return sample

    def _try(self, version: str, sample: Any, requests: int) -> None:
        for number in range(requests):
            answer = self._predict(f"/{version}", sample)
            if answer.status_code != 200:
                raise RolloutFailed(
                    f"{self.model} {version} answered request {number + 1} of {requests} with"
                    f" status {answer.status_code}: {answer.text[:300]}."
                )

    def _watch(self, version: str, sample: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self._predict("", sample)
            if answer.status_code != 200:
                raise RolloutFailed(
                    f"{self.model} {version} answered with status {answer.status_code} as the"
                    f" default: {answer.text[:300]}."
                )
            workers = self.default()["workers"]
            if any(each["status"] != "READY" for each in workers):
                raise RolloutFailed(f"A worker of {self.model} {version} ended as the default.")
            time.sleep(INTERVAL)

    def _unload(self, version: str) -> None:
        """Unload a version once it answers nothing; it gets no new requests."""
        time.sleep(2 * INTERVAL)
        self._manage("DELETE", f"/models/{self.model}/{version}", timeout=LOAD_SECONDS)
        if self.signed:
            self.signed.remove(versioned(self.model, version))

    def _predict(self, version: str, body: Any) -> httpx.Response:
        return self._call(
            "POST",
            f"{self.inference_url}/predictions/{self.model}{version}",
            headers=self.tokens.header("inference"),
            json=body,
        )

    def _manage(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._management(method, path, **options)
        if answer.status_code == NOT_ALLOWED:
            raise RolloutFailed(
                "The management API does not register models; start the server with"
                " --allow-rollouts, or set enable_model_api=true in config.properties."
            )
        return _require_success(answer, f"{method} {path}")

    def _management(self, method: str, path: str, **options: Any) -> httpx.Response:
        header = self.tokens.header("management")
        return self._call(method, f"{self.management_url}{path}", headers=header, **options)

    def _call(self, method: str, url: str, **options: Any) -> httpx.Response:
        options.setdefault("timeout", CALL_SECONDS)
        try:
            return self.client.request(method, url, **options)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise RolloutFailed(
                f"{url} does not answer ({reason}); start the server, or name its --workdir."
            ) from None


_NO_SAMPLE = (
    "TorchServe cannot tell the sample of this model, which has continuousBatching; give a request"
    " with --sample FILE."
)


def _require_success(answer: httpx.Response, request: str) -> httpx.Response:
    if answer.is_error:
        raise RolloutFailed(f"TorchServe answered {request}: {_message(answer)}")
    return answer


def _labels(text: str) -> tuple[str | None, str | None]:
    """Return the model and the version that a counter is for."""
    found = dict(LABEL.findall(text))
    return found.get("model_name"), found.get("model_version")


def _message(answer: httpx.Response) -> str:
    """Return the message of an error of TorchServe, in its own words."""
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
