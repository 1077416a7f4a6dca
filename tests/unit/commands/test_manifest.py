"""`agent-contracts manifest`: fields, differences in words, and exit codes."""

from typer.testing import CliRunner

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.cli import app
from recipe.agent_contracts.policy.registry import Registry
from tests.policies import manifest


def run(*words):
    result = CliRunner().invoke(app, ["manifest", *map(str, words)])
    return result.exit_code, " ".join(result.output.split())


def written(folder, **changes):
    (folder / "manifests").mkdir(parents=True)
    made = manifest(**changes)
    return folder / "manifests" / f"{made.write(folder / 'manifests').removeprefix('sha256:')}.json"


def test_show_prints_every_field_and_both_hashes(tmp_path):
    code, output = run("show", written(tmp_path))
    assert code == 0
    assert manifest().manifest_hash in output
    assert manifest().scaffold_hash in output
    assert "parser_version p1" in output


def test_other_weights_are_the_same_scaffold(tmp_path):
    code, output = run("diff", written(tmp_path / "a"), written(tmp_path / "b", policy_version=4))
    assert code == 0
    assert "policy version was 0, is 4" in output
    assert "the same scaffold with other weights" in output


def test_another_scaffold_is_named_and_fails(tmp_path):
    code, output = run("diff", written(tmp_path / "a"), written(tmp_path / "b", system_prompt_hash="sha256:x"))
    assert code == 1
    assert "system prompt hash was sha256:s, is sha256:x" in output


def test_an_exported_folder_stands_for_its_manifest(tmp_path):
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "manifest.json").write_bytes(canonical_json(manifest()))
    assert run("diff", tmp_path / "export", written(tmp_path / "run")) == (0, "the same policy")


def test_a_run_folder_stands_for_the_last_version_that_it_served(tmp_path):
    for version in (0, 1):
        made = manifest(policy_version=version, weight_checksum=f"sha256:{version}")
        registry = Registry(tmp_path)
        publication = registry.build(version, 0, num_ranks=1)
        registry.stage(publication, checksum=made.weight_checksum, manifest_hash=made.write(tmp_path / "manifests"))
        registry.activate(publication)
    assert "policy_version 1" in run("show", tmp_path)[1]
    assert "policy_version 0" in run("show", tmp_path, "--version", "0")[1]
    assert run("show", tmp_path, "--version", "9")[0] == 2


def test_a_folder_without_a_policy_is_refused(tmp_path):
    code, output = run("show", tmp_path)
    assert code == 2
    assert "holds neither" in output
