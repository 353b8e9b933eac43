from __future__ import annotations

import socket
from dataclasses import astuple, replace

from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import PortInUse, Ports, free_ports
from hf_serve.scripts.serving.properties import read_properties
from tests.sentences import refused


def test_config_properties_contains_the_default_ports() -> None:
    assert Ports.of(read_properties(ROOT / "config.properties")) == Ports()


def test_ports_round_trip_through_properties() -> None:
    ports = Ports(1, 2, 3, 4, 5)

    assert Ports.of(ports.properties()) == ports


def test_missing_ports_have_the_defaults_of_torchserve() -> None:
    assert Ports.of({"grpc_inference_port": "9"}) == replace(Ports(), grpc_inference=9)


def test_free_ports_are_distinct_and_free() -> None:
    ports = free_ports()

    assert len(set(astuple(ports))) == 5
    ports.require_free()


def test_no_connection_can_take_a_free_port_before_its_server() -> None:
    first_of_linux = 32_768

    assert max(astuple(free_ports())) < first_of_linux


def test_without_a_port_of_the_range_the_system_chooses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert port not in astuple(free_ports([port]))


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with refused(PortInUse, port):
            replace(free_ports(), metrics=port).require_free()
