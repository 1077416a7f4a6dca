"""A real three-step run: what the records must hold, and what can be done with them."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import psutil
import pytest
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.evaluation.heldout import heldout_rows
from recipe.agent_contracts.policy.manifest import read_manifest
from recipe.agent_contracts.policy.registry import Registry
from recipe.agent_contracts.policy.scaffold_lock import read_attestations, read_lock
from recipe.agent_contracts.transition.replay import Replayer
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import TurnRecord, episodes, read_run
from recipe.agent_contracts.transition.trajectory.context import contexts
from recipe.agent_contracts.update.record import read_updates
from recipe.agent_contracts.verification.clean_room import open_room
from recipe.agent_contracts.verification.layers import LayerKind, Verdict
from tests.e2e.conftest import GROUP_SIZE, NUM_STEPS, REPOSITORY, TASKS_PER_BATCH, read_tail, run_limited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def played(smoke_run: Path) -> list[list[TurnRecord]]:
    return list(episodes(smoke_run))


@pytest.fixture(scope="module")
def metrics(smoke_run: Path) -> list[dict]:
    lines = (smoke_run / "metrics.jsonl").read_text().splitlines()
    return [{"step": entry["step"], **entry["data"]} for entry in map(json.loads, lines)]


def trained(played):
    return [turns for turns in played if turns[0].episode.partition == "train"]


def test_every_step_was_trained(metrics):
    steps = [entry["step"] for entry in metrics if "actor/grad_norm" in entry]
    assert steps == list(range(1, NUM_STEPS + 1))
    assert all(math.isfinite(entry["actor/grad_norm"]) for entry in metrics if "actor/grad_norm" in entry)


def test_something_was_learned_from(metrics):
    """A batch whose groups all agree has no gradient; over three steps of a weak policy that does not happen."""
    assert any(entry.get("actor/grad_norm", 0.0) > 0 for entry in metrics)
    assert all(entry["actor/lr"] > 0 for entry in metrics if "actor/lr" in entry)


def test_every_update_is_recorded_and_its_advantages_are_those_of_the_recorded_rewards(smoke_run, played):
    """RLOO over each group's recorded rewards, weight 1/B: computed here from the turn records alone."""
    rewards = {turns[0].episode.trajectory_id: turns[-1].reward_components["task_success"] for turns in trained(played)}
    tokens = {turns[0].episode.trajectory_id: sum(len(t.action_token_ids) for t in turns) for turns in trained(played)}
    updates = list(read_updates(smoke_run))
    assert [update.step for update in updates] == list(range(1, NUM_STEPS + 1))
    for update in updates:
        groups = defaultdict(list)
        for row in update.rows:
            groups[row.group_id].append(row)
        assert [len(rows) for rows in groups.values()] == [GROUP_SIZE] * TASKS_PER_BATCH
        for rows in groups.values():
            returns = [rewards[row.trajectory_id] for row in rows]
            for row, own in zip(rows, returns, strict=True):
                others = (sum(returns) - own) / (GROUP_SIZE - 1)
                assert row.advantages == pytest.approx([own - others])
                assert row.weight == pytest.approx(1 / (GROUP_SIZE * TASKS_PER_BATCH))
                assert row.num_action_tokens == tokens[row.trajectory_id]


def test_why_answers_for_a_token_of_the_last_update(smoke_run):
    update = list(read_updates(smoke_run))[-1]
    row = max(update.rows, key=lambda row: abs(row.advantages[0]))
    words = ["why", smoke_run, "--step", update.step, "--trajectory", row.trajectory_id, "--token", 0]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.output
    assert f"coefficient {row.coefficient(0):+.6g}" in result.output
    assert f"held-out evaluation at version {update.output_policy_version}" in result.output


def test_every_episode_has_one_termination_code_and_a_reward(played):
    for turns in played:
        assert [record.termination_reason is not None for record in turns] == [False] * (len(turns) - 1) + [True]
        assert turns[-1].termination_reason.is_outcome
        assert turns[-1].reward_components["task_success"] in (0.0, 1.0)


def test_every_sampled_token_has_a_finite_aligned_log_probability(smoke_run):
    for record in read_run(smoke_run):
        assert len(record.action_token_ids) == len(record.behavior_logprobs) == len(record.action_mask) > 0
        assert all(math.isfinite(value) and value <= 0 for value in record.behavior_logprobs)


def test_context_only_ever_grows_by_what_was_sampled_and_observed(played):
    for turns in played:
        for (before, record), (after, _) in itertools.pairwise(zip(contexts(turns), turns, strict=True)):
            grown = before + record.action_token_ids
            assert after[: len(grown)] == grown
            assert len(after) > len(grown)


def test_groups_are_complete_and_of_one_version_without_lag(played):
    sizes, versions = Counter(), defaultdict(set)
    for turns in trained(played):
        identity = turns[0].episode
        sizes[identity.trainer_step, identity.group_id] += 1
        versions[identity.trainer_step] |= {record.behavior_policy_version for record in turns}
    assert set(sizes.values()) == {GROUP_SIZE}
    assert Counter(step for step, _ in sizes) == dict.fromkeys(range(1, NUM_STEPS + 1), TASKS_PER_BATCH)
    # Step k trains on what the weights after k - 1 updates sampled.
    assert versions == {step: {step - 1} for step in range(1, NUM_STEPS + 1)}


def test_every_record_points_to_a_manifest_and_the_scaffold_never_drifts(smoke_run):
    lock = read_lock(smoke_run)
    for record in read_run(smoke_run):
        name = record.policy_manifest_hash.removeprefix("sha256:")
        manifest = read_manifest(smoke_run / "manifests" / f"{name}.json")
        assert manifest.manifest_hash == record.policy_manifest_hash
        assert manifest.policy_version == record.behavior_policy_version
        assert manifest.weight_checksum == record.behavior_weight_checksum
        decoding = "train" if record.episode.partition == "train" else f"heldout/{record.episode.decoding}"
        assert manifest.without_weights() in lock.decodings[decoding]


def test_every_process_computed_the_scaffold_and_agreed_before_the_first_token(smoke_run, played):
    attested = read_attestations(smoke_run)
    assert {line.role for line in attested} == {"launcher", "engine", "trainer", "rollout", "evaluator", "reward"}
    assert len({line.process_id for line in attested if line.role != "evaluator"}) >= 5
    # A resumed run attests again.
    first = [next(line.at for line in attested if line.role == role) for role in {line.role for line in attested}]
    assert max(first) < min(turns[0].rollout_started_at for turns in played)


def test_the_registry_knows_what_served_each_token(smoke_run):
    registry = Registry(smoke_run)
    published = [record for record in registry.publications() if record.active_at is not None][: NUM_STEPS + 1]
    assert [record.policy_version for record in published] == list(range(NUM_STEPS + 1))
    assert len({record.weight_checksum for record in published}) == NUM_STEPS + 1
    for record in published:
        (found,) = registry.acknowledgements(record.id)
        assert found.received_checksum == record.weight_checksum
        assert found.not_compared is None
        assert found.num_compared > 0
    for record in read_run(smoke_run):
        for at in (record.rollout_started_at, record.rollout_finished_at):
            (served,) = registry.serving(at)
            assert served.policy_version == record.behavior_policy_version == record.behavior_policy_version_end
            assert served.weight_checksum == record.behavior_weight_checksum


def test_generator_and_trainer_agree_on_what_was_sampled(metrics):
    """fp32 on both sides: measured below 1e-5 (largest probability difference of a token)."""
    gaps = [entry["training/rollout_probs_diff_max"] for entry in metrics if "training/rollout_probs_diff_max" in entry]
    assert len(gaps) == NUM_STEPS
    assert max(gaps) < 1e-4


def test_replaying_the_whole_run_gives_the_same_observations_states_and_rewards(smoke_run, played):
    replayer = Replayer(smoke_run)
    try:
        found = list(replayer.replay_run())
    finally:
        replayer.close()
    assert len(found) == len(played)
    assert [divergence for _, divergence in found if divergence is not None] == []


def test_held_out_tasks_were_played_before_and_after(smoke_run):
    rows = heldout_rows(smoke_run)
    assert {row.decoding for row in rows} == {"temperature_1", "greedy"}
    assert all(row.unverified == 0 for row in rows)


def test_the_experiment_was_preregistered(smoke_run, played):
    written = (smoke_run / "experiment.yaml").stat().st_mtime
    assert written < min(turns[0].rollout_started_at for turns in played)
    assert (smoke_run / "experiment.sha256").read_text().startswith("sha256:")


def test_traces_form_a_tree_from_episode_to_verification(smoke_run):
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{smoke_run}/mlflow.db")
    experiment = mlflow.get_experiment_by_name("agent_contracts")
    traces = mlflow.search_traces(locations=[experiment.experiment_id], return_type="list")
    training = [trace for trace in traces if trace.info.tags["validate"] == "False"]
    assert len(training) == NUM_STEPS * GROUP_SIZE
    for trace in training:
        spans = {span.span_id: span for span in trace.data.spans}
        names = {span.name.split(" ")[0] for span in spans.values()}
        assert {"agent_loop", "episode", "turn", "LLMServerClient.generate", "tool", "verification"} <= names
        assert [span.name for span in spans.values() if span.parent_id is None] == ["agent_loop"]
        parents = {
            span.name.split(" ")[0]: spans[span.parent_id].name.split(" ")[0]
            for span in spans.values()
            if span.parent_id
        }
        assert parents["LLMServerClient.generate"] == parents["tool"] == "turn"
        assert parents["turn"] == "episode"
        assert {"task_id", "seed", "step", "termination", "reward"} <= set(trace.info.tags)


def test_the_trace_ui_shows_the_episodes(smoke_run, logs, chromium):
    page = chromium.open_traces(f"sqlite:///{smoke_run}/mlflow.db", logs / "traces.png")
    assert "agent_finish" in page
    assert "task_id" in page


def test_the_command_line_reads_the_run(smoke_run):
    for words, shown in (
        (["replay", str(smoke_run)], "0 diverged"),
        (["heldout", str(smoke_run)], "temperature_1"),
        (["manifest", "show", str(smoke_run)], "scaffold_hash"),
    ):
        result = subprocess.run(
            [REPOSITORY / ".venv/bin/agent-contracts", *words], capture_output=True, text=True, timeout=300
        )
        assert result.returncode == 0, result.stderr
        assert shown in result.stdout


def test_every_verdict_says_how_it_came_about_and_in_what_box(smoke_run, played):
    blobs = BlobStore(smoke_run / "blobs")
    for turns in played:
        verdict = msgspec.json.decode(blobs.get(turns[-1].verdict_ref), type=Verdict)
        assert verdict.score.vector() == turns[-1].reward_components
        assert [layer.kind for layer in verdict.layers] == [LayerKind.STATE_CHECK, LayerKind.RULES]
        assert verdict.backend == open_room().box.name
        assert {"env_clean", "result_private"} <= set(verdict.guarantees)


def test_every_gate_passes_that_one_run_can_measure(smoke_run):
    """G12 compares with an asynchronous run, G19 with control runs."""
    assert CliRunner().invoke(app, ["audit", "verifier", str(smoke_run)]).exit_code == 0
    judged = CliRunner().invoke(app, ["gates", str(smoke_run)])
    assert judged.exit_code == 1, "a gate that was not measured is not passed"
    gates = json.loads((smoke_run / "gates.json").read_text())
    assert {gate["gate"] for gate in gates if gate["status"] != "passed"} == {"G12", "G19"}, judged.output


def test_the_report_of_the_run_is_there_and_in_its_traces(smoke_run):
    page = (smoke_run / "report.html").read_text()
    assert "G01" in page
    assert list((smoke_run / "mlartifacts").rglob("report.html"))


def test_an_exported_checkpoint_is_what_was_served_and_plays(smoke_run, tmp_path):
    out = tmp_path / "exported"
    command = [
        str(REPOSITORY / ".venv/bin/agent-contracts"),
        "export",
        str(smoke_run),
        str(out),
        "--step",
        str(NUM_STEPS),
    ]
    log = tmp_path / "export.log"
    assert run_limited(command, 300, log) == 0, read_tail(log)
    assert "reloaded log probabilities equal the served ones" in read_tail(log)
    assert "the exported tensors have the checksum that every inference rank acknowledged" in read_tail(log)
    manifest = read_manifest(out / "manifest.json")
    assert manifest.policy_version == NUM_STEPS
    assert manifest.weight_checksum == Registry(smoke_run).published(NUM_STEPS).weight_checksum
    play = [command[0], "rollout", "--task", "terminal/train:0", "--n", "2", "--model", str(out)]
    assert run_limited(play, 300, log) == 0, read_tail(log)
    assert "of 2 succeeded" in read_tail(log)


def test_a_resumed_run_goes_on_with_the_next_step_and_the_next_prompts(smoke_run, played, logs):
    """Last on purpose: it adds a step to the shared run."""
    log = logs / "resume.log"
    command = ["bash", "scripts/resume.sh", str(smoke_run), f"trainer.total_training_steps={NUM_STEPS + 1}"]
    command += ["trainer.val_before_train=false", "trainer.test_freq=-1"]
    assert run_limited(command, 600, log) == 2, "an experiment that differs must be refused"
    assert "resume would change trainer.test_freq" in read_tail(log, 80)
    command = command[:4]
    lock = (smoke_run / "scaffold.json").read_bytes()
    (smoke_run / "scaffold.json").write_bytes(lock.replace(b"processed_logprobs", b"raw_logprobs"))
    assert run_limited(command, 600, log) == 2, "a scaffold that differs must be refused"
    assert "logprobs mode was raw_logprobs, is processed_logprobs" in read_tail(log, 80)
    (smoke_run / "scaffold.json").write_bytes(lock)
    assert run_limited(command, 600, log) == 0, read_tail(log)
    resumed = [json.loads(line) for line in (smoke_run / "metrics.1.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in resumed if "actor/grad_norm" in entry["data"]] == [NUM_STEPS + 1]
    assert len((smoke_run / "metrics.jsonl").read_text().splitlines()) > 0
    seen = {turns[0].episode.task_id for turns in trained(played)}
    new = [turns for turns in trained(episodes(smoke_run)) if turns[0].episode.trainer_step == NUM_STEPS + 1]
    assert len(new) == TASKS_PER_BATCH * GROUP_SIZE
    assert not seen & {turns[0].episode.task_id for turns in new}
    assert {record.behavior_policy_version for turns in new for record in turns} == {NUM_STEPS}


def test_no_process_of_a_run_is_left(smoke_run):
    left = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if str(smoke_run) in words and process.pid != os.getpid():
            left.append(words[:200])
    assert left == []
