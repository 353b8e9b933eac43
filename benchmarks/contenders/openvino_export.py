"""Export a causal language model for openvino-genai, as `optimum-cli export openvino` does.

The command itself fails beside a diffusers that is newer than transformers, which optimum-intel
imports where it is installed. Arguments: the folder of the checkpoint, and that of the export.
"""

from __future__ import annotations

import sys

from hf_serve.handlers.process.packages import require_package


def main() -> None:
    """Export the model of the first argument to the folder of the second one."""
    checkpoint, target = sys.argv[1:]
    intel = require_package("optimum.intel.openvino", "this benchmark", "make install")
    model = intel.OVModelForCausalLM.from_pretrained(
        checkpoint, export=True, compile=False, load_in_8bit=False, local_files_only=True
    )
    model.save_pretrained(target)


if __name__ == "__main__":
    main()
