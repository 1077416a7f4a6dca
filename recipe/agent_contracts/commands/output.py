"""What every command shares: the console, how it fails, and the run folder as an argument."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

# Redirected output keeps its columns instead of being squeezed into 80 characters.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)

RunFolder = Annotated[Path, typer.Argument(help="Run folder: runs/<experiment>/<run id>", exists=True, file_okay=False)]


def fail(message: str, code: int) -> NoReturn:
    """Print an error and end with an exit code: 1 for a finding, 2 for what could not be done."""
    console.print("[red]error:[/red]", end=" ")
    console.print(message, markup=False, soft_wrap=True)
    raise typer.Exit(code)
