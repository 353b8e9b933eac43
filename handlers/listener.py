"""Who hears a text before it is complete."""

from __future__ import annotations

from collections.abc import Callable


class Listener:
    """Hears a text while it is made; `heard` is what was told so far."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self.heard = ""

    def unheard(self, text: str) -> str:
        """Return what of a text was not told; should it begin differently, nothing."""
        return text[len(self.heard) :] if text.startswith(self.heard) else ""

    def tell(self, text: str) -> None:
        """Tell what of the text was not told before; should it begin differently, nothing."""
        if new := self.unheard(text):
            self.heard = text
            self._hear(new)
