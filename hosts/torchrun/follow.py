"""A process that torchrun starts on a machine without TorchServe.

python -m hf_serve.hosts.torchrun.follow FOLDER
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from hf_serve.hosts.archives import import_from, open_archive
from hf_serve.hosts.command_line import plain_errors


@plain_errors()
def main(folder: Path) -> None:
    """Compute a part of the model in a folder until TorchServe's worker ends."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    archive = open_archive(folder)
    import_from(archive.folder)
    # Imports the archive's own `handlers`.
    from hf_serve.hosts.torchrun.follower import Follower  # noqa: PLC0415

    Follower(archive.folder, archive.name, archive.version).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
