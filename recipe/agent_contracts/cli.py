"""The `agent-contracts` command. Each subcommand is a thin call; what it needs is imported inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recipe.agent_contracts.commands import (
    audit,
    controls,
    env,
    firewall,
    gates,
    horizon,
    ledger,
    manifest,
    quarantine,
    replay,
    report,
    runs,
    trace,
    why,
)
from recipe.agent_contracts.commands.output import RunFolder, console, fail
from recipe.agent_contracts.errors import ConfigContradiction, ContractViolation

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(audit.app, name="audit")
app.add_typer(env.app, name="env")
app.add_typer(manifest.app, name="manifest")
app.command()(replay.replay)
app.add_typer(trace.app, name="trace")
app.add_typer(runs.app, name="runs")
app.command()(ledger.ledger)
app.add_typer(quarantine.app, name="quarantine")
app.command()(why.why)
app.command()(gates.gates)
app.command()(controls.controls)
app.command()(controls.sft_only)
app.command()(horizon.horizon)
app.command()(firewall.firewall)
app.command()(report.report)


@app.command()
def doctor() -> None:
    """What is installed, which platform and stack, which guarantees hold, what to do about each problem."""
    from recipe.agent_contracts import doctor as judge

    checks = judge.checks()
    judge.render(checks)
    raise typer.Exit(judge.exit_code(checks))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    run: Annotated[Path | None, typer.Option(help="Run folder; a new one below runs/ by default")] = None,
) -> None:
    """Train with verl: progress on the screen, the flood in a log. Hydra overrides follow as arguments."""
    from recipe.agent_contracts import training

    try:
        finished = training.train(list(context.args), run, console)
    except (ConfigContradiction, ContractViolation, FileNotFoundError) as error:
        fail(str(error), code=2)
    raise typer.Exit(finished.exit_code)


@app.command()
def resume(
    run: RunFolder, overrides: Annotated[list[str] | None, typer.Argument(help="Hydra overrides")] = None
) -> None:
    """Go on from a run's last checkpoint, in the same folder, with the same experiment."""
    from recipe.agent_contracts import training

    try:
        finished = training.resume(run, overrides or [], console)
    except (ConfigContradiction, ContractViolation, FileNotFoundError) as error:
        fail(str(error), code=2)
    raise typer.Exit(finished.exit_code)


@app.command()
def rollout(
    task: Annotated[str, typer.Option(help="<domain>/<split>:<index>, e.g. terminal/train:0")],
    n: Annotated[int, typer.Option(min=1, help="Episodes")] = 8,
    model: Annotated[Path | None, typer.Option(help="Hugging Face folder; the cold-started policy by default")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer folder, where it is not the model's")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 for greedy decoding")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the task generator and of the sampling")] = 1,
) -> None:
    """Play a task without a trainer and print transcript, mask and score."""
    from recipe.agent_contracts import play

    try:
        row = play.find_task(task, seed)
        weights, words = _policy_folders(model, tokenizer)
    except (ValueError, FileNotFoundError) as error:
        fail(str(error), code=2)
    play.play_task(row, weights, words, n, temperature, seed)


@app.command()
def heldout(run: RunFolder) -> None:
    """The held-out table of a run: before and after training, by half and by decoding."""
    from recipe.agent_contracts.evaluation.heldout import heldout_rows, heldout_table

    try:
        console.print(heldout_table(heldout_rows(run)))
    except ValueError as error:
        fail(str(error), code=1)


@app.command()
def export(
    run: RunFolder,
    out: Annotated[Path, typer.Argument(help="New folder for the Hugging Face model")],
    step: Annotated[int, typer.Option(help="Which checkpoint")],
    merge: Annotated[bool, typer.Option(help="LoRA: write the whole model, not the adapter alone")] = False,
) -> None:
    """Write a checkpoint as a Hugging Face folder with its manifest, and prove that it is what was served."""
    from recipe.agent_contracts import export as exporter

    try:
        exported = exporter.export(run, step, out, merge)
    except (OSError, ContractViolation) as error:
        fail(str(error), code=1)
    console.print(f"{exported.folder}  {exported.weight_checksum}")
    if exported.is_fingerprint_equal:
        console.print("the exported tensors have the checksum that every inference rank acknowledged")
    if exported.max_logprob_difference is None:
        console.print(f"[yellow]not proven:[/yellow] the run sampled nothing with the weights of step {step}")
    else:
        console.print(
            f"reloaded log probabilities equal the served ones within {exported.max_logprob_difference:.1e} "
            f"over {exported.num_probe_turns} turns"
        )


@app.command()
def policy(
    imitation_steps: Annotated[int | None, typer.Option(help="As given to scripts/cold_start.sh")] = None,
) -> None:
    """Print the folder of the cold-started policy (model/, tokenizer/)."""
    try:
        typer.echo(_cold_started(imitation_steps).absolute())
    except FileNotFoundError as error:
        fail(str(error), code=1)


def _policy_folders(model: Path | None, tokenizer: Path | None) -> tuple[Path, Path]:
    from recipe.agent_contracts.policy.tokenizer import folder_of

    if model is not None:
        if not model.is_dir():
            raise FileNotFoundError(f"--model {model} is not a folder")
        return model, tokenizer or folder_of(model)
    folder = _cold_started()
    return folder / "model", folder / "tokenizer"


def _cold_started(imitation_steps: int | None = None) -> Path:
    from recipe.agent_contracts.cold_start.config import ColdStartConfig
    from recipe.agent_contracts.cold_start.fixture import fixture_folder

    config = ColdStartConfig() if imitation_steps is None else ColdStartConfig(imitation_steps=imitation_steps)
    folder = fixture_folder(config)
    if not (folder / "report.json").exists():
        raise FileNotFoundError("no cold-started policy yet: run bash scripts/cold_start.sh, or give --model")
    return folder


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
