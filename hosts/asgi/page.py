"""The page at `/`: models to try, to explain and to compare, as one file without anything from
elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

HTML = Path(__file__).with_name("page.html").read_text(encoding="utf-8")


def _hash(tag: str) -> str:
    """Return the source of the one element with a tag, as a Content-Security-Policy names it."""
    (content,) = re.findall(f"<{tag}[^>]*>(.*?)</{tag}>", HTML, re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


POLICY = "; ".join(
    [
        "default-src 'none'",
        f"script-src {_hash('script')}",
        f"style-src {_hash('style')}",
        "connect-src 'self'",
        "img-src data: blob:",
        "media-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
