"""The five ports of a TorchServe instance."""

from __future__ import annotations

import secrets
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass
from urllib.parse import urlsplit

from hf_serve.handlers.errors import KitError

HOST = "127.0.0.1"
# Linux gives ports from 32768 on to connections.
FREE_PORTS = range(20_000, 32_000)
ATTEMPTS = 100


class PortInUse(KitError):
    """A port of the server is already in use."""

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(
            f"Port {port} is in use; stop the program that uses it or choose another port; "
            "the `--help` of the command has the option."
        )


@dataclass(frozen=True)
class Ports:
    """The ports of a server, all on the loopback interface."""

    inference: int = 8080
    management: int = 8081
    metrics: int = 8082
    grpc_inference: int = 7070
    grpc_management: int = 7071

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Ports:
        """Return the ports of a config.properties, with TorchServe's defaults for missing keys.

        Raises:
            KitError: a value has no port.
        """
        addresses = {
            name: _number(f"{name}_address", properties, lambda text: urlsplit(text).port)
            for name in ("inference", "management", "metrics")
        }
        grpc = {
            name: _number(f"{name}_port", properties, int)
            for name in ("grpc_inference", "grpc_management")
        }
        return cls(**{name: port for name, port in {**addresses, **grpc}.items() if port})

    def properties(self) -> dict[str, str]:
        """Return the config.properties keys for these ports."""
        return {
            "inference_address": f"http://{HOST}:{self.inference}",
            "management_address": f"http://{HOST}:{self.management}",
            "metrics_address": f"http://{HOST}:{self.metrics}",
            "grpc_inference_address": HOST,
            "grpc_management_address": HOST,
            "grpc_inference_port": str(self.grpc_inference),
            "grpc_management_port": str(self.grpc_management),
        }

    def require_free(self) -> None:
        """Check that no port is in use.

        Raises:
            PortInUse: for the first port that is in use.
        """
        for port in astuple(self):
            require_free(port)


def _number(
    key: str, properties: Mapping[str, str], parse: Callable[[str], int | None]
) -> int | None:
    """Return the port of a setting; None where the settings do not name one."""
    try:
        return parse(properties[key]) if key in properties else None
    except ValueError:
        raise KitError(
            f"config.properties: {key} is {properties[key]}, which names no port; correct it."
        ) from None


def require_distinct(ports: Ports, url_port: int) -> None:
    """Check that each address has a port that no other has.

    Args:
        url_port: the port of the one URL; 0 for none.

    Raises:
        KitError: two addresses have the same port.
    """
    found = Counter([*astuple(ports), *([url_port] if url_port else [])])
    repeated = next((port for port, count in found.items() if count > 1), None)
    if repeated is not None:
        of_url = "the one URL and TorchServe" if repeated == url_port else "two of TorchServe"
        raise KitError(
            f"Port {repeated} is that of {of_url}; give each address another port; the `--help` of"
            " the command has the options."
        )


def require_free(port: int) -> None:
    """Check that a port is not in use.

    Raises:
        PortInUse: it is.
    """
    if not is_free(port):
        raise PortInUse(port)


def is_free(port: int) -> bool:
    """Return whether no program listens on a port of the loopback interface."""
    try:
        with _listener() as listener:
            listener.bind((HOST, port))
    except OSError:
        return False
    return True


def free_ports(candidates: Sequence[int] = FREE_PORTS) -> Ports:
    """Return five ports that are currently free; others than the candidates if these are not."""
    with ExitStack() as held:
        return Ports(*(_bind(held.enter_context(_listener()), candidates) for _ in range(5)))


def _bind(listener: socket.socket, candidates: Sequence[int]) -> int:
    """Bind to a free port, and return it.

    The ports that the system chooses could belong to a connection before the server binds to them.
    """
    for _ in range(ATTEMPTS):
        port = secrets.choice(candidates)
        with suppress(OSError):
            listener.bind((HOST, port))
            return port
    listener.bind((HOST, 0))
    return int(listener.getsockname()[1])


def _listener() -> socket.socket:
    listener = socket.socket()
    # Like Java, count a port in TIME_WAIT as free.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return listener
