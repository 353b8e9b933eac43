"""The model store of a server with a key: unpacked archives, each with a signature of the key."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from scripts.archives.verification import unpack_signed


@dataclass(frozen=True)
class SignedStore:
    """A folder of the server's own, in which TorchServe finds nothing that is not signed.

    It is the model store that the settings of TorchServe name, so it holds for every way in: the
    start, and what the management API registers.

    Attributes:
        folder: the folder, which only the user of the server may write to.
        source: the folder of archives, which others may write to.
        public_key: the key that archives must be signed with.
    """

    folder: Path
    source: Path
    public_key: Path

    def add(self, file: str) -> str:
        """Check an archive of the source, unpack it, and return its name in this store.

        Raises:
            DamagedArchive: a file is missing, was changed, or has no sum.
            UntrustedArchive: the signature is missing or wrong, or is that of another model.
            UnreadableKey: there is no key in the file.
        """
        name = file.removesuffix(".mar")
        self.remove(name)
        unpack_signed(self.source / file, self.folder / name, self.public_key)
        return name

    def remove(self, name: str) -> None:
        """Remove an unpacked archive that is not served any more."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
