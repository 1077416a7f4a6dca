"""`agent-contracts manifest`: what a policy was, and in which field two policies differ.

A policy is named by a manifest file, by a folder that holds `manifest.json` (an export), or by a run folder, which
stands for the last version that it served.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from recipe.agent_contracts.commands.output import console, fail
from recipe.agent_contracts.errors import ContractViolation

if TYPE_CHECKING:
    from recipe.agent_contracts.policy.manifest import PolicyManifest

app = typer.Typer(no_args_is_help=True, help="Show a policy's manifest, or compare two.")

Named = Annotated[Path, typer.Argument(help="Manifest file, exported folder, or run folder", exists=True)]
Version = Annotated[int | None, typer.Option(help="Of a run folder: this version instead of the last")]


@app.command()
def show(policy: Named, version: Version = None) -> None:
    """Print every field, and the two hashes that name the policy and its scaffold."""
    manifest = _find(policy, version)
    for field, value in msgspec.to_builtins(manifest).items():
        console.print(f"{field:22} {value}", markup=False)
    console.print(f"{'manifest_hash':22} {manifest.manifest_hash}\n{'scaffold_hash':22} {manifest.scaffold_hash}")


@app.command(name="diff")
def compare(a: Named, b: Named) -> None:
    """Name each field that differs, with its old and its new value. Exit code 1 when the scaffold differs."""
    from recipe.agent_contracts.policy.manifest import diff

    before, after = _find(a, None), _find(b, None)
    changes = diff(before, after)
    for change in changes:
        console.print(str(change), markup=False, soft_wrap=True)
    if before.scaffold_hash != after.scaffold_hash:
        console.print("the scaffold differs: a difference in results is not the weights' alone")
        raise typer.Exit(1)
    console.print("the same scaffold with other weights" if changes else "the same policy")


def _find(path: Path, version: int | None) -> PolicyManifest:
    from recipe.agent_contracts.policy.manifest import read_manifest
    from recipe.agent_contracts.policy.registry import FILE_NAME

    try:
        if path.is_file():
            return read_manifest(path)
        if (path / "manifest.json").exists():
            return read_manifest(path / "manifest.json")
        if not (path / FILE_NAME).exists():
            raise ValueError(f"{path} holds neither manifest.json nor {FILE_NAME}")
        return _of_run(path, version)
    except (ValueError, ContractViolation) as error:
        fail(str(error), code=2)


def _of_run(run: Path, version: int | None) -> PolicyManifest:
    from recipe.agent_contracts.policy.manifest import manifest_path, read_manifest
    from recipe.agent_contracts.policy.registry import Registry

    registry = Registry(run)
    served = [record for record in registry.publications() if record.active_at is not None]
    if not served:
        raise ValueError(f"{run} served no version")
    published = served[-1] if version is None else registry.published(version)
    assert published.manifest_hash is not None, "a served publication was staged"
    return read_manifest(manifest_path(run, published.manifest_hash))
