"""What is missing is not measured, what does not apply has a declared reason, what is damaged is refused by name."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.cli import app
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.gates import GATES, go, judge_run
from recipe.agent_contracts.evaluation.gates.base import Status
from recipe.agent_contracts.policy.manifest import manifest_path
from tests import gated
from tests.reported import write_experiment

EXCUSE = {"G12": "trains synchronously", "G19": "one arm of a comparison"}
pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def run(tmp_path):
    """A whole run, for a test to damage."""
    parts = gated.passing(tmp_path)
    parts.write()
    return parts.folder


def call(folder):
    return CliRunner().invoke(app, ["gates", str(folder)])


def statuses(folder):
    return {finding["gate"]: finding["status"] for finding in json.loads((folder / "gates.json").read_text())}


def test_go_is_exit_code_0_and_the_findings_are_written(run):
    result = call(run)
    assert result.exit_code == 0, result.output
    assert "go" in result.output.splitlines()[-1]
    assert statuses(run) == {gate.id: "passed" for gate in GATES}


def test_without_evidence_only_the_checks_of_the_code_itself_pass(tmp_path):
    write_experiment(tmp_path)
    result = call(tmp_path)
    assert result.exit_code == 1
    assert "not measured is not passed" in result.output
    found = statuses(tmp_path)
    assert {gate for gate, status in found.items() if status == "passed"} == {"G03", "G18"}
    assert set(found.values()) == {"passed", "not_measured"}
    assert not (tmp_path / "policies.sqlite").exists(), "judging made a registry"


def test_without_episodes_what_was_trained_on_is_missing_and_the_rest_is_not_measured(tmp_path):
    parts = gated.passing(tmp_path)
    parts.episodes.clear()
    parts.write()
    found = {finding.gate: finding for finding in judge_run(tmp_path)}
    assert found["G14"].status is Status.FAILED
    about_episodes = {"G01", "G02", "G05", "G07", "G10", "G13", "G15"}
    assert {gate for gate, finding in found.items() if finding.status is Status.NOT_MEASURED} == about_episodes


@pytest.mark.parametrize("name", ["audits/verifier.json", "policies.sqlite", "ledger.sqlite", "scaffold.json"])
def test_one_gate_that_was_not_measured_is_no_go(run, name):
    (run / name).unlink()
    result = call(run)
    assert result.exit_code == 1
    assert list(statuses(run).values()).count("not_measured") == 1


def test_a_failed_gate_is_exit_code_1_and_names_its_counterexample(tmp_path):
    parts = gated.passing(tmp_path)
    parts.change_turn("a_0", 0, observation="nothing to see")
    parts.write()
    result = call(tmp_path)
    assert result.exit_code == 1
    assert "a_0, turn 0: observation" in result.output


def test_an_excused_gate_does_not_apply_and_says_why(tmp_path):
    parts = gated.passing(tmp_path)
    parts.audits.clear()
    parts.contract["evaluation__gates_not_applicable"] = EXCUSE
    parts.write()
    findings = judge_run(tmp_path)
    excused = {finding.gate: finding.evidence for finding in findings if finding.status is Status.NOT_APPLICABLE}
    assert excused == {gate: f"experiment.yaml: {reason}" for gate, reason in EXCUSE.items()}
    assert go(findings)


@pytest.mark.parametrize("excuse", [{"G12": ""}, {"G12": "  "}, {"G12": None}, {"G20": "there is no such gate"}])
def test_an_excuse_without_a_reason_or_a_gate_is_refused(tmp_path, excuse):
    write_experiment(tmp_path, evaluation__gates_not_applicable=excuse)
    with pytest.raises(ContractViolation, match=r"evaluation\.gates.*G"):
        judge_run(tmp_path)
    assert call(tmp_path).exit_code == 2
    assert not (tmp_path / "gates.json").exists()


def test_a_folder_without_an_experiment_is_no_run(tmp_path):
    assert call(tmp_path).exit_code == 2


RECORDS = [
    *("experiment.yaml", "scaffold.json", "scaffold_attested.jsonl", "policies.sqlite", "ledger.sqlite"),
    *("audits/verifier.json", "audits/controls.json", "audits/sync_async.json", "updates/step-000002.json.zst"),
]


@pytest.mark.parametrize("name", RECORDS)
def test_a_torn_record_is_refused_by_name(run, name):
    path = run / name
    content = path.read_bytes()
    path.write_bytes(b'{"torn: ' + content[8 : len(content) // 2])
    refused_by_name(run, name)


@pytest.mark.parametrize("name", ["experiment.yaml", *(name for name in RECORDS if name.startswith("audits/"))])
def test_a_file_that_lacks_what_is_read_of_it_is_refused_by_name(run, name):
    (run / name).write_text("{}")
    refused_by_name(run, name)


def test_a_changed_line_of_an_episode_is_refused_by_name(run):
    part = run / "trajectories/part-a.jsonl"
    part.write_bytes(part.read_bytes().replace(b'"action_kind":"finish"', b'"action_kind":"abstai"', 1))
    refused_by_name(run, "trajectories/part-a.jsonl:4")


def test_a_changed_line_of_the_metrics_is_refused_by_name(run):
    path = run / "metrics.jsonl"
    path.write_text(path.read_text().replace('"step": 1', '"step": "one"'))
    refused_by_name(run, "metrics.jsonl:2")


def test_a_changed_update_is_refused_by_name(run):
    path = run / "updates/step-000001.json.zst"
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(bytes(content))
    refused_by_name(run, "updates/step-000001.json.zst")


def test_a_manifest_that_is_not_what_its_name_says_fails_the_turns_that_name_it(run):
    policy = gated.policy_of(2, gated.SAMPLED)
    manifest_path(run, policy.manifest_hash).write_bytes(
        canonical_json(msgspec.structs.replace(policy, base_revision="sha256:other"))
    )
    failed = [finding for finding in judge_run(run) if finding.status is Status.FAILED]
    assert [(finding.gate, finding.evidence) for finding in failed] == [("G04", "v2_0, turn 0")]


def test_a_changed_blob_is_seen_by_the_gates_that_read_it(run):
    task = json.loads((run / "trajectories/part-a.jsonl").read_text().splitlines()[0])["episode"]["task_hash"]
    digest = task.removeprefix("sha256:")
    path = run / "blobs" / digest[:2] / digest
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))
    found = {finding.gate: finding for finding in judge_run(run)}
    assert {gate for gate, finding in found.items() if finding.status is Status.FAILED} == {"G01", "G02"}
    assert digest in found["G01"].evidence


def test_a_torn_last_line_hides_nothing_that_was_trained_on(tmp_path):
    """Its writer was killed. That is no fault, unless an update used the episode."""
    parts = gated.passing(tmp_path)
    parts.episodes["b_3"] = parts.episodes.pop("b_3")  # the last that is written
    parts.write()
    part = tmp_path / "trajectories/part-a.jsonl"
    part.write_bytes(part.read_bytes()[:-20])
    found = {finding.gate: finding for finding in judge_run(tmp_path)}
    # Its last turn is gone: the update counted more tokens than are left, and nothing says how it ended.
    assert {gate for gate, finding in found.items() if finding.status is Status.FAILED} == {"G14", "G15"}
    assert found["G15"].evidence == "b_3 has no termination code and was trained on"


def refused_by_name(run, name):
    with pytest.raises(ContractViolation) as refused:
        judge_run(run)
    assert refused.value.evidence == str(run / name)
    result = call(run)
    assert result.exit_code == 2
    assert name in result.output.replace("\n", "")
