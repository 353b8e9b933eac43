"""Read and write Java .properties files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hf_serve.handlers.errors import KitError
from hf_serve.scripts.serving.ports import Ports


class NotInUtf8(KitError):
    """A path has bytes that are no text, which Java cannot name."""

    def __init__(self, value: str) -> None:
        shown = value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        super().__init__(f"{shown} is not UTF-8, so that TorchServe cannot find it; rename it.")


def read_properties(path: Path) -> dict[str, str]:
    """Return the keys and raw values of a file, without comments.

    Java reads ISO-8859-1. A file in UTF-8 is read, too, and means the same once it is written.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("iso-8859-1")
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def default_ports(path: Path) -> Ports:
    """Return the ports of a file as the defaults of a command's options.

    They are TorchServe's own where the file cannot be read: the command says so when it runs.
    """
    try:
        return Ports.of(read_properties(path))
    except (OSError, KitError):
        return Ports()


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    """Write one `key=value` line per item, in ASCII: Java reads no other text as it was meant.

    Raises:
        NotInUtf8: a value has bytes that are no text.
    """
    lines = (f"{key}={_ascii(value)}\n" for key, value in values.items())
    path.write_text("".join(lines), encoding="ascii")


def escape(value: object) -> str:
    """Escape a value for a .properties file."""
    text = str(value).replace("\\", "\\\\")
    for character, escaped in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f")):
        text = text.replace(character, escaped)
    return f"\\{text}" if text.startswith(" ") else text


def _ascii(value: str) -> str:
    """Return a value with `\\uXXXX` for each UTF-16 unit that is not ASCII."""
    if value.isascii():
        return value
    try:
        units = value.encode("utf-16-be")
    except UnicodeEncodeError:
        raise NotInUtf8(value) from None
    numbers = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(each) if each < 128 else f"\\u{each:04x}" for each in numbers)
