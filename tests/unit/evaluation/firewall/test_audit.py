"""A leak of each kind is planted between two suites that are apart, and the check of that kind names it."""

import datetime
import json

import msgspec
import pytest

from recipe.agent_contracts.domains import DOMAINS
from recipe.agent_contracts.evaluation.firewall.rules import RULES
from recipe.agent_contracts.transition.envs.terminal.dataset import HELDOUT_CANARY, heldout_rows, train_rows
from tests.unit.evaluation.firewall import rows
from tests.unit.evaluation.firewall.rows import HELDOUT_TEXTS, TRAIN_TEXTS, audited, check_of, failed, row

LEAKED = HELDOUT_TEXTS[0]


def planted(**changes):
    """A training file with one more task, whose parts may be those of held-out task 0."""
    text = changes.pop("text", "Nothing that was asked before, in words of its own.")
    return [*rows.train_rows(), row("planted", "train", text, **changes)]


def test_suites_that_are_apart_pass_and_say_what_does_not_apply(tmp_path):
    found = audited(tmp_path)
    assert (found.passed, failed(found)) == (True, set())
    left_out = {check.name: check.figure for check in found.checks if check.status == "not_applicable"}
    assert left_out == {
        "repository": "no training task names one",
        "temporal_cutoff": "no cut-off is declared",
        "heldout_in_episodes": "two files were audited, not a run",
        "canary_in_episodes": "two files were audited, not a run",
    }


@pytest.mark.parametrize(
    ("changes", "caught"),
    [
        ({"text": LEAKED}, {"task_text", "wording", "minhash_text", "tfidf_text", "tfidf_content", "minhash_content"}),
        ({"text": LEAKED.upper() + "!"}, {"task_text", "wording", "minhash_text", "tfidf_text"}),
        ({"files": {"heldout-0.txt": "content of heldout-0"}}, {"initial_files"}),
        ({"template": "t-heldout"}, {"template"}),
        ({"family": "f-heldout"}, {"environment"}),
    ],
)
def test_a_planted_leak_is_caught_by_its_check_and_named(tmp_path, changes, caught):
    found = audited(tmp_path, train=planted(**changes))
    assert failed(found) >= caught - {"tfidf_content", "minhash_content"}
    assert failed(found) <= caught | {"tfidf_content", "minhash_content"}
    for name in failed(found):
        assert any("planted" in line and "heldout-0" in line for line in check_of(found, name).evidence), name


def test_a_copy_under_another_name_is_caught_whole(tmp_path):
    copy = rows.heldout_rows()[0]
    task = {**json.loads(copy["extra_info"]["task"]), "task_id": "planted", "split": "train", "seed": 9}
    names = {"task_id": "planted", "family": "f-train", "template": "t-train", "task": json.dumps(task)}
    truth = {"ground_truth": json.dumps({**json.loads(copy["reward_model"]["ground_truth"]), "task_id": "planted"})}
    renamed = {**copy, "extra_info": {**copy["extra_info"], **names}, "reward_model": truth}
    found = audited(tmp_path, train=[*rows.train_rows(), {**renamed, "data_source": "terminal/train"}])
    exact = {"task_text", "public_task", "initial_files", "grader", "wording"}
    near = {f"{measure}_{view}" for measure in ("minhash", "tfidf") for view in ("text", "content")}
    assert failed(found) == exact | near


def test_a_grader_of_its_own_kind_is_compared_as_text(tmp_path):
    train, heldout = rows.train_rows(), rows.heldout_rows()
    train[1]["reward_model"] = heldout[0]["reward_model"] = {"ground_truth": "42, exactly"}
    found = audited(tmp_path, train, heldout)
    assert failed(found) == {"grader"}
    assert "heldout-0 and train train-1" in check_of(found, "grader").evidence[0]


@pytest.mark.parametrize(("trained", "tested"), [("7", "9"), ("amber", "slate"), ("very dark", "light")])
def test_one_wording_with_other_values_is_caught_whatever_its_template_id(tmp_path, trained, tested):
    def ask(name, split, file, value):
        text, files = f"Set color to {value} in {file}.ini.", {f"{file}.ini": "color=none"}
        return row(name, split, text, files=files, expected=f"color={value}")

    train = [*rows.train_rows(), ask("planted", "train", "core", trained)]
    heldout = [*rows.heldout_rows(), ask("heldout-2", "heldout", "site", tested)]
    found = audited(tmp_path, train, heldout)
    assert "wording" in failed(found)
    assert "set _ to _ in _" in check_of(found, "wording").evidence[0]
    assert "task_text" not in failed(found)


def test_numbers_are_slots_though_no_file_and_no_grader_holds_them(tmp_path):
    train = [*rows.train_rows(), row("planted", "train", "Wait 30 seconds, then go.")]
    heldout = [*rows.heldout_rows(), row("heldout-2", "heldout", "Wait 45 seconds, then go.")]
    assert check_of(audited(tmp_path, train, heldout), "wording").evidence == [
        "held-out heldout-2 and train planted: wait _ seconds then go"
    ]


def test_a_pair_exactly_at_the_bound_fails(tmp_path):
    words = [f"w{letter}" for letter in "abcdefghijk"]
    train = [row("planted", "train", " ".join(words))]
    heldout = [row("h", "heldout", " ".join([*words[:5], "other", *words[6:]]))]
    found = audited(tmp_path, train, heldout)
    assert check_of(found, "minhash_text").figures["max"] == RULES.max_jaccard
    assert check_of(found, "minhash_text").status == "failed"


@pytest.mark.parametrize("word", range(0, 12, 2))
def test_a_text_with_one_word_changed_is_a_near_duplicate_in_either_measure_or_both(tmp_path, word):
    changed = LEAKED.split()
    changed[word] = "something"
    found = audited(tmp_path, train=planted(text=" ".join(changed)))
    assert failed(found) & {"minhash_text", "tfidf_text"}
    worst = check_of(found, "minhash_text").pairs[0]
    assert (worst.train, worst.heldout) == ("planted", "heldout-0")
    assert worst.similarity >= RULES.max_jaccard
    error = (worst.similarity * (1 - worst.similarity) / (RULES.num_bands * RULES.rows_per_band)) ** 0.5
    assert worst.estimated is not None and abs(worst.estimated - worst.similarity) < 4 * error


def test_shuffled_words_are_found_by_the_cosine_alone(tmp_path):
    words = sorted(LEAKED.rstrip(".").split(), key=str.casefold)
    assert failed(audited(tmp_path, train=planted(text=" ".join(words)))) >= {"tfidf_text"}
    assert "minhash_text" not in failed(audited(tmp_path, train=planted(text=" ".join(words))))


def test_unrelated_texts_are_far_apart(tmp_path):
    found = audited(tmp_path)
    assert check_of(found, "minhash_text").figures["max"] == 0
    assert check_of(found, "tfidf_text").figures["max"] < 0.5


def test_a_shared_repository_is_named(tmp_path):
    train = [row("a", "train", TRAIN_TEXTS[0], repository="org/one"), row("b", "train", TRAIN_TEXTS[1])]
    apart = [row("h", "heldout", HELDOUT_TEXTS[0], repository="org/two")]
    assert check_of(audited(tmp_path, train, apart), "repository").status == "passed"
    shared = [row("h", "heldout", HELDOUT_TEXTS[0], repository="org/one")]
    found = audited(tmp_path, train, shared)
    assert failed(found) == {"repository"}
    assert check_of(found, "repository").evidence == ["held-out h and train a: org/one"]


@pytest.mark.parametrize(
    ("train_date", "heldout_date", "evidence"),
    [
        ("2026-05-31", "2026-06-01", []),
        ("2026-06-01", "2026-06-01", ["train train-0: 2026-06-01"]),
        ("2026-05-31", "2026-05-31", ["held-out heldout-0: 2026-05-31"]),
        ("2026-05-31", None, ["held-out heldout-0: no date"]),
    ],
)
def test_dates_lie_on_their_side_of_the_cutoff(tmp_path, train_date, heldout_date, evidence):
    train = [row("train-0", "train", TRAIN_TEXTS[0], date=train_date)]
    heldout = [row("heldout-0", "heldout", HELDOUT_TEXTS[0], date=heldout_date)]
    check = check_of(audited(tmp_path, train, heldout, cutoff=datetime.date(2026, 6, 1)), "temporal_cutoff")
    assert check.status == ("failed" if evidence else "passed")
    assert check.evidence == evidence


def test_a_cutoff_for_files_without_dates_does_not_apply(tmp_path):
    check = check_of(audited(tmp_path, cutoff=datetime.date(2026, 6, 1)), "temporal_cutoff")
    assert (check.status, check.figure) == ("not_applicable", "no task has a date")


def test_a_canary_anywhere_in_a_training_row_is_named(tmp_path):
    found = audited(tmp_path, train=planted(note=f"pasted from a file with {HELDOUT_CANARY} in it"))
    assert failed(found) == {"canary_in_train"}
    assert check_of(found, "canary_in_train").evidence == ["train planted"]


def test_a_heldout_file_without_its_canary_and_a_training_file_with_one_are_named(tmp_path):
    from recipe.agent_contracts.evaluation.firewall.audit import audit
    from recipe.agent_contracts.evaluation.firewall.suite import read_suite

    train = rows.write(tmp_path / "t.parquet", rows.train_rows(), HELDOUT_CANARY)
    heldout = rows.write(tmp_path / "h.parquet", rows.heldout_rows())
    assert failed(audit(read_suite(train), read_suite(heldout))) == {"heldout_canary", "canary_in_train"}


def test_a_domain_without_network_policy_fails_and_one_without_canary_does_not_apply(tmp_path, monkeypatch):
    silent = msgspec.structs.replace(DOMAINS["terminal"], network=None, heldout_canary=None)
    monkeypatch.setitem(DOMAINS, "terminal", silent)
    found = audited(tmp_path)
    assert failed(found) == {"network_policy"}
    assert check_of(found, "network_policy").evidence == ["terminal declares no network policy"]
    assert check_of(found, "canary_in_train").status == "not_applicable"


def test_evidence_is_cut_but_counted_whole(tmp_path):
    texts = [f"Only number {index} asks for exactly this." for index in range(8)]
    train = [row(f"t{index}", "train", text) for index, text in enumerate(texts)]
    heldout = [row(f"h{index}", "heldout", text) for index, text in enumerate(texts)]
    check = check_of(audited(tmp_path, train, heldout), "task_text")
    assert (check.figure, len(check.evidence)) == ("8 of 8 held-out tasks", 5)


def test_what_the_generator_writes_is_apart(tmp_path):
    found = audited(tmp_path, train_rows(160, seed=1), heldout_rows(40, seed=1))
    assert found.passed
    assert (found.num_train, found.num_heldout) == (160, 40)
    assert check_of(found, "repository").status == "not_applicable"
