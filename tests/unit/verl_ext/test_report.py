"""The end of a run: report.html in its folder, its figures and the report in MLflow."""

from mlflow import MlflowClient
from omegaconf import OmegaConf

from tests import reported
from verl_ext import report, tracing


def config(run, backend):
    return OmegaConf.create(
        {
            "contract": {"run": {"folder": str(run)}},
            "actor_rollout_ref": {"rollout": {"trace": {"backend": backend}}},
            "trainer": {"project_name": "smoke", "total_training_steps": 1},
        }
    )


def test_figures_and_report_are_logged_where_the_traces_are(tmp_path, monkeypatch):
    run = reported.make_run(tmp_path / "run")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    tracing.create_experiment(uri, "smoke", str(tmp_path / "artifacts"))
    report.write_final(config(run, "mlflow"))
    client = MlflowClient(uri)
    (logged,) = client.search_runs([client.get_experiment_by_name("smoke").experiment_id])
    assert logged.info.run_name == "run"
    assert logged.info.status == "FINISHED"
    assert logged.data.metrics["report/heldout/success"] == 0.75
    assert [file.path for file in client.list_artifacts(logged.info.run_id)] == ["report.html"]


def test_without_mlflow_the_report_is_in_the_run_folder_alone(tmp_path):
    run = reported.make_run(tmp_path / "run")
    report.write_final(config(run, None))
    assert (run / "report.html").read_text().startswith("<!doctype html>")


def test_a_report_that_cannot_be_written_leaves_the_run_as_it_is(tmp_path, capsys):
    report.write_final(config(tmp_path, "mlflow"))
    assert "no report: [evaluation.run]" in capsys.readouterr().err
