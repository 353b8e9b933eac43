"""Who hears a text before it is complete."""

from __future__ import annotations

from collections.abc import Callable


class TextStream:
    """Hears a text while it is made; `heard` is what was told so far."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self.emitted = ""

    def not_emitted(self, text: str) -> str:
        """Return what of a text was not told; should it begin differently, nothing."""
        return text[len(self.emitted) :] if text.startswith(self.emitted) else ""

    def emit(self, text: str) -> None:
        """Tell what of the text was not told before; should it begin differently, nothing."""
        if new := self.not_emitted(text):
            self.emitted = text
            self._send(new)
