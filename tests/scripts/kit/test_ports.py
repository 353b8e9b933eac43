from __future__ import annotations

import socket
from dataclasses import astuple, replace

import pytest

from scripts.kit.places import ROOT
from scripts.kit.ports import PortInUse, Ports, free_ports
from scripts.kit.properties import read_properties


def test_the_repositorys_settings_name_the_default_ports() -> None:
    assert Ports.of(read_properties(ROOT / "config.properties")) == Ports()


def test_settings_and_ports_are_the_same_both_ways() -> None:
    ports = Ports(1, 2, 3, 4, 5)

    assert Ports.of(ports.properties()) == ports


def test_what_settings_do_not_say_is_torchserves_default() -> None:
    assert Ports.of({"grpc_inference_port": "9"}) == replace(Ports(), grpc_inference=9)


def test_free_ports_are_five_that_are_free() -> None:
    ports = free_ports()

    assert len(set(astuple(ports))) == 5
    ports.require_free()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(PortInUse, match=f"Port {port} is in use"):
            replace(free_ports(), metrics=port).require_free()
