"""Settings are written so that Java reads what was meant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hf_serve.scripts.serving.properties import NotInUtf8, escape, read_properties, write_properties
from hf_serve.scripts.serving.torchserve import server_environment
from tests.sentences import refused


def read_as_java(path: Path) -> dict[str, str]:
    """Return the values of a file as java.util.Properties has them."""
    lines = path.read_bytes().decode("iso-8859-1").splitlines()
    pairs = (line.partition("=") for line in lines)
    units = {key: value.encode("ascii").decode("unicode_escape") for key, _, value in pairs}
    return {
        key: value.encode("utf-16", "surrogatepass").decode("utf-16")
        for key, value in units.items()
    }


@pytest.mark.parametrize(
    "value", ["/\u00e9", "/\u6a21/\U0001f600", "C:\\\\models\\\\u", "/a\\n=b", "/a\tb"]
)
def test_a_value_is_read_as_it_was_meant(tmp_path: Path, value: str) -> None:
    path = tmp_path / "config.properties"
    write_properties(path, {"model_store": escape(value)})
    assert path.read_bytes().isascii()
    assert read_as_java(path) == {"model_store": value}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "iso-8859-1"])
def test_a_file_of_a_user_is_read_in_its_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "config.properties"
    path.write_bytes("# \u00e9\nmodel_store=/\u00e9\n".encode(encoding))
    assert read_properties(path) == {"model_store": "/\u00e9"}


def test_a_value_that_java_escapes_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.properties"
    write_properties(path, {"model_store": "/\\u00e9"})
    assert read_properties(path) == {"model_store": "/\\u00e9"}
    assert read_as_java(path) == {"model_store": "/\u00e9"}


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with refused(NotInUtf8, "/\\xff"):
        write_properties(tmp_path / "config.properties", {"model_store": os.fsdecode(b"/\xff")})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "C.UTF-8"),
        ({"LC_ALL": "C"}, "C.UTF-8"),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LC_ALL": "", "LANG": "de_DE.UTF-8"}, ""),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, None),
    ],
)
def test_java_has_a_locale_with_all_letters(
    given: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "environ", given)
    assert server_environment(tmp_path, 1).get("LC_ALL") == expected
