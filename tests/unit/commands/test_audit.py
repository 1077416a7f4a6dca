"""`agent-contracts audit verifier` and `audit label`, with the verifier in its own process."""

import json

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.domains import DOMAINS
from recipe.agent_contracts.evaluation.gates.base import Run, Status
from recipe.agent_contracts.evaluation.gates.control import VerifierErrorRates
from recipe.agent_contracts.evaluation.report.measured import VerifierAudit
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.verification.audit_queue import LABELS
from recipe.agent_contracts.verification.layers import Verdict
from recipe.agent_contracts.verification.terminal import TerminalVerifier
from recipe.agent_contracts.verification.verifier import Score
from tests import verifiers
from tests.unit.commands.conftest import write


def call(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.fixture
def shipped(monkeypatch):
    """The shipped verifier on two families."""
    domain = verifiers.domain_of(verifiers.Scored)
    monkeypatch.setitem(DOMAINS, "terminal", domain)


@pytest.fixture
def experiment(run):
    (run / "experiment.yaml").write_text(yaml.safe_dump({"contract": {"environment": {"domain": "terminal"}}}))
    return run


def test_the_shipped_verifier_passes_on_every_family(tmp_path):
    result = call("verifier", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "verifier-terminal.json").read_text())
    assert content["verifier_version"] == TerminalVerifier.version
    assert (content["passed"], content["false_positives"], content["num_no_verdict"]) == (True, 0, 0)
    for family in content["families"]:
        assert family in result.output
    assert f"FN would be {content['num_whitespace_rejected']} of" in result.output


@pytest.mark.parametrize(
    ("verifier", "shown"),
    [
        (verifiers.IgnoresTrailingSpace, "false positives, at most 0"),
        (verifiers.SkipsCollateral, "false positives, at most 0"),
        (verifiers.AcceptsUndeclared, "false positives, at most 0"),
        (verifiers.TooStrict, "false negatives, at most 5%"),
        (verifiers.Dies, "its process ended without a verdict"),
    ],
)
def test_a_broken_verifier_ends_with_exit_code_1_and_says_why(monkeypatch, verifier, shown):
    monkeypatch.setitem(DOMAINS, "terminal", verifiers.domain_of(verifier))
    result = call("verifier")
    assert result.exit_code == 1, result.output
    assert shown in " ".join(result.output.split())
    assert "a bound does not hold" in result.output


def test_the_audit_of_a_run_is_what_gate_and_report_read(shipped, experiment):
    assert VerifierErrorRates(Run(experiment)).finding().status is Status.NOT_MEASURED
    assert call("verifier", experiment).exit_code == 0
    content = Run(experiment).audit("verifier", dict)
    finding = VerifierErrorRates(Run(experiment)).finding()
    assert finding.status is Status.PASSED
    assert finding.figure == f"FP 0 of {content['num_negatives']}, FN 0 of {content['num_positives']}"
    known = {name: content[name] for name in VerifierAudit.__struct_fields__}
    assert all(isinstance(count, int) for count in known.values())


def test_a_failed_audit_is_written_too_and_fails_the_gate(monkeypatch, experiment):
    monkeypatch.setitem(DOMAINS, "terminal", verifiers.domain_of(verifiers.SkipsCollateral))
    assert call("verifier", experiment).exit_code == 1
    assert VerifierErrorRates(Run(experiment)).finding().status is Status.FAILED


def test_labels_that_people_gave_are_counted(shipped, experiment):
    assert call("label", experiment, "g_0", "--right", "--by", "Ada").exit_code == 0
    said = call("label", experiment, "g_1", "--wrong", "--by", "Ada", "--note", "nothing was written")
    assert "g_1: wrong, says Ada; the verifier gave 0" in said.output
    call("verifier", experiment)
    human = Run(experiment).audit("verifier", dict)["sources"]["human"]
    assert (human["num_positives"], human["num_negatives"]) == (1, 1)
    assert (human["false_positives"], human["false_negatives"]) == (0, 0)


def test_a_label_needs_a_name_and_an_episode_of_the_run(experiment):
    assert call("label", experiment, "g_0", "--right").exit_code == 2
    assert call("label", experiment, "nobody_0", "--right", "--by", "Ada").exit_code == 2
    assert not (experiment / LABELS).exists()


def test_a_label_says_right_or_wrong(experiment):
    assert call("label", experiment, "g_0", "--by", "Ada").exit_code == 2


def test_a_run_that_another_version_judged_is_refused(shipped, recorded):
    folder, (turns, _) = recorded
    (folder / "experiment.yaml").write_text(yaml.safe_dump({"contract": {"environment": {"domain": "terminal"}}}))
    verdict = Verdict(score=Score(task_success=1.0), verifier_version="terminal-verifier-v0")
    reference = BlobStore(folder / "blobs").put(msgspec.json.encode(verdict))
    write(folder, [*turns[:-1], msgspec.structs.replace(turns[-1], verdict_ref=reference)])
    result = call("verifier", folder)
    assert result.exit_code == 2, result.output
    assert "verdicts of terminal-verifier-v0" in result.output
    assert Run(folder).audit("verifier", dict) is None


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    result = call("verifier", tmp_path)
    assert (result.exit_code, "evaluation.run" in result.output) == (2, True)


def test_damaged_labels_are_refused_and_nothing_is_written(shipped, experiment):
    (experiment / LABELS).parent.mkdir()
    (experiment / LABELS).write_text("{}\n")
    assert call("verifier", experiment).exit_code == 2
    assert Run(experiment).audit("verifier", dict) is None
