"""At the end of a run: its gates, its report.html, and the same figures in MLflow with the report as an artifact.

MLflow gets a run of its own in the experiment that holds the traces, named like the run folder. A report that cannot be
written says so and leaves the finished training as it is: `agent-contracts report` names the cause again.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path

from omegaconf import DictConfig

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.report import FILE_NAME, measure, write_report
from recipe.agent_contracts.evaluation.report.figures import figures


def write_final(config: DictConfig) -> None:
    """Write `report.html` into the run folder and, where traces go to MLflow, log it there."""
    folder = Path(config.contract.run.folder)
    try:
        runs = measure([folder])
        write_report(runs, folder / FILE_NAME)
    except (ContractViolation, ValueError, OSError, sqlite3.Error) as error:
        print(f"no report: {error}", file=sys.stderr)
        return
    if config.actor_rollout_ref.rollout.trace.backend == "mlflow":
        uri, name = os.environ["MLFLOW_TRACKING_URI"], config.trainer.project_name
        log_to_mlflow(uri, name, folder.name, figures(runs[0]), folder / FILE_NAME, config.trainer.total_training_steps)


def log_to_mlflow(
    tracking_uri: str, experiment: str, name: str, metrics: dict[str, float], report: Path, step: int
) -> str:
    """Log figures and report in a new MLflow run of an experiment that exists; gives the MLflow run's id."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None, f"the launcher created the experiment {experiment}"
    run_id: str = client.create_run(found.experiment_id, run_name=name).info.run_id
    now = int(time.time() * 1000)
    client.log_batch(run_id, metrics=[Metric(key, value, now, step) for key, value in metrics.items()])
    client.log_artifact(run_id, str(report))
    client.set_terminated(run_id)
    return run_id
