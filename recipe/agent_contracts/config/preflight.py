"""Checks on what a run reads, before Ray starts: the model folder and a port. Those on the data are in `dataset`.

A missing file is found here in a second, with its path and the command that makes it, and not by a worker's stack
trace minutes later.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

from recipe.agent_contracts.config.dataset import check_data, check_prompt_lengths
from recipe.agent_contracts.errors import ContractViolation

__all__ = ["check_data", "check_model", "check_port_free", "check_prompt_lengths"]

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
WEIGHTS = ("*.safetensors", "*.bin")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")
REPLACED_TOKENIZERS = ("qwen2",)
"""Model types whose name in config.json makes transformers 5.10 put its own pre-tokenizer in place of a saved one."""
GENERIC_CLASSES = (None, "TokenizersBackend", "PreTrainedTokenizerFast")


def check_model(path: str, tokenizer_path: str | None) -> None:
    """Check that a model can be loaded, and that its tokenizer will be the one that was saved.

    Args:
        path: A local folder, or a hub name such as ``Qwen/Qwen2.5-1.5B-Instruct``.
        tokenizer_path: Where the tokenizer is, when not beside the weights.

    Raises:
        ContractViolation: ``preflight.model`` or ``preflight.tokenizer``.
    """
    folder = _folder(path, "actor_rollout_ref.model.path")
    if folder is not None:
        _check_weights(folder)
    if tokenizer_path is not None:
        folder = _folder(tokenizer_path, "actor_rollout_ref.model.tokenizer_path")
    if folder is not None:
        _check_tokenizer(folder)


def check_port_free(port: int, key: str, host: str = "127.0.0.1") -> None:
    """Check that nothing listens on `port` of this machine.

    Raises:
        ContractViolation: ``preflight.port``, naming the key, the port and who could hold it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # A port whose last connections are still being closed is free for a server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = "taken" if error.errno == errno.EADDRINUSE else error.strerror
            raise ContractViolation(
                "preflight.port",
                expected=f"{key}={port} to be free on {host}",
                found=reason,
                evidence=f"ss -ltnp 'sport = :{port}'",
                remedy="another run, a Ray cluster that was left behind, an mlflow ui or a vLLM server may hold it: "
                "end that, or choose another port (0, where it is allowed, takes a free one)",
            ) from error


def _folder(path: str, key: str) -> Path | None:
    """The local folder that `path` names; None for a hub name that can be fetched or is cached."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    # A name whose first half is a folder here is a mistyped path, not an organisation on the hub.
    if not HUB_NAME.fullmatch(path) or folder.parent.is_dir():
        raise ContractViolation(
            "preflight.model",
            expected=f"{key} to be a folder, or a hub name like org/name",
            found=f"{path}, which does not exist",
            remedy="scripts/cold_start.sh makes a small model on a machine without a hub",
        )
    if _is_offline() and not _is_cached(path):
        raise ContractViolation(
            "preflight.model",
            expected=f"{key}={path} to be a folder, or in the hub's cache since HF_HUB_OFFLINE is set",
            found="neither",
            evidence=str(_hub_cache()),
            remedy="correct the path, unset HF_HUB_OFFLINE, or fetch the model first (hf download)",
        )
    return None


def _is_offline() -> bool:
    return any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in OFFLINE)


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()


def _is_cached(name: str) -> bool:
    snapshots = _hub_cache() / f"models--{name.replace('/', '--')}" / "snapshots"
    return snapshots.is_dir() and any(snapshots.iterdir())


def _check_weights(folder: Path) -> None:
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any(any(folder.glob(pattern)) for pattern in WEIGHTS):
        missing.append(" or ".join(WEIGHTS))
    if missing:
        raise ContractViolation(
            "preflight.model",
            expected="config.json and a weight file in actor_rollout_ref.model.path",
            found=f"no {', no '.join(missing)}",
            evidence=str(folder),
            remedy="name the folder that save_pretrained wrote; a verl checkpoint must be exported first",
        )


def _check_tokenizer(folder: Path) -> None:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ContractViolation(
            "preflight.tokenizer",
            expected=f"one of {', '.join(TOKENIZER_FILES)}",
            found="none",
            evidence=str(folder),
            remedy="set actor_rollout_ref.model.tokenizer_path",
        )
    model_type = _json(folder / "config.json").get("model_type")
    tokenizer_class = _json(folder / "tokenizer_config.json").get("tokenizer_class")
    if model_type in REPLACED_TOKENIZERS and tokenizer_class in GENERIC_CLASSES:
        raise ContractViolation(
            "preflight.tokenizer",
            expected="a tokenizer that loads as it was saved",
            found=f"a config.json with model_type={model_type} beside a tokenizer of class {tokenizer_class}: "
            "transformers would replace its pre-tokenizer without a word, and other token ids would be trained",
            evidence=str(folder),
            remedy="set actor_rollout_ref.model.tokenizer_path to a folder that holds its files and no config.json",
        )


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is no such file."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    return content if isinstance(content, dict) else {}
