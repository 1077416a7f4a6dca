"""The report of a small whole run: what it says, what it says is missing, and that it is one accessible file."""

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import msgspec
import pytest
from typer.testing import CliRunner

from recipe.agent_contracts.cli import app
from recipe.agent_contracts.evaluation.report import measure
from recipe.agent_contracts.evaluation.report.assemble import page_of
from recipe.agent_contracts.evaluation.report.figures import figures
from recipe.agent_contracts.evaluation.report.render import TEMPLATES
from recipe.agent_contracts.verification.quarantine import Entry, Quarantine, Reason
from tests import reported

VOID = {"meta", "link", "br", "hr", "img", "input", "path", "line"}
SECTIONS = ["gates", "learning", "heldout", "retain", "safety", "conduct", "update"]
SECTIONS += ["mismatch", "admission", "policy", "why", "evidence"]


class Outline(HTMLParser):
    """Headings, ids, links, header cells; fails on a tag that is not closed in order."""

    def __init__(self, html):
        super().__init__()
        self.headings, self.ids, self.links, self.header_cells, self.open, self.text = [], [], [], [], [], ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "th":
            self.header_cells.append(named.get("scope"))
        self.ids += [named["id"]] if "id" in named else []
        self.links += [value for name, value in attributes if name in ("href", "src", "xlink:href", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def call(*words):
    return CliRunner().invoke(app, ["report", *map(str, words)])


def html_of(run, *more):
    out = run.parent / "out.html"
    result = call(run, *more, "--out", out)
    assert result.exit_code == 0, result.output
    return out.read_text()


def axis(run, name):
    page = page_of(measure([run]))
    (figure,) = next(found for found in page.axes if found.name == name).figures
    return figure


@pytest.fixture
def run(tmp_path):
    """A run that a test may change."""
    return reported.make_run(tmp_path / "run", evaluation__attempts_per_task=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that no test changes. Its gates are judged once."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return reported.make_run(folder, evaluation__attempts_per_task=2)


@pytest.fixture(scope="module")
def html(whole):
    return html_of(whole)


def test_the_report_lies_in_the_run_folder_and_holds_every_section(run):
    assert call(run).exit_code == 0
    outline = Outline((run / "report.html").read_text())
    assert [found for found in outline.ids if found in SECTIONS] == SECTIONS
    assert "verdict" in outline.ids


def test_it_names_nothing_outside_itself(html):
    assert "://" not in html
    assert "@import" not in html and "url(" not in html
    assert "<script" not in html
    assert all(link.startswith("#") for link in Outline(html).links)


def test_headings_descend_in_order_ids_are_unique_and_links_arrive(html):
    outline = Outline(html)
    assert outline.headings[0] == 1 and outline.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.ids) == len(set(outline.ids))
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)
    assert set(outline.header_cells) == {"col", "row"}


def test_capability_is_the_paired_gain_with_interval_and_denominators(whole):
    # First: 2 of 8 attempts, all of task 0. Last: 6 of 8, tasks 0 to 2. The gain of tasks is 0, 1, 1, 0.
    figure = axis(whole, "Capability")
    assert figure.headline.startswith("gain +0.500 [")
    assert "Success 0.750 [" in figure.text
    assert "8 attempts at 4 held-out tasks" in figure.text


def test_a_word_follows_from_the_interval_alone(tmp_path):
    gained = axis(reported.make_run(tmp_path / "gain", successes=(0, 8)), "Capability")
    lost = axis(reported.make_run(tmp_path / "loss", successes=(8, 0)), "Capability")
    same = axis(reported.make_run(tmp_path / "same", successes=(4, 4)), "Capability")
    assert [(found.state, found.word) for found in (gained, lost, same)] == [
        ("good", "gain"),
        ("bad", "loss"),
        ("open", "no gain shown"),
    ]


def test_reliability_is_pass_hat_k_over_the_attempts_made(whole):
    figure = axis(whole, "Repeated-run reliability")
    assert figure.headline.startswith("pass^2 0.750 [")
    assert "All 2 of 2 attempts, over 4 tasks" in figure.text


def test_gates_are_judged_when_none_are_newer_than_the_records(run):
    assert not (run / "gates.json").exists()
    assert "gates" in axis(run, "Integrity").headline
    findings = json.loads((run / "gates.json").read_text())
    findings[0]["figure"] = "as it was judged before"
    (run / "gates.json").write_text(json.dumps(findings))
    assert "as it was judged before" in html_of(run)
    later = (run / "gates.json").stat().st_mtime + 10
    os.utime(run / "metrics.jsonl", (later, later))
    assert "as it was judged before" not in html_of(run)


def test_what_was_not_measured_says_what_measures_it(html):
    text = Outline(html).text
    for missing, remedy in (
        ("audits/verifier.json is missing", "agent-contracts audit verifier"),
        ("audits/controls.json is missing", "bash scripts/run_controls.sh"),
        ("the run evaluated no retain suite", "contract.evaluation.retain_suites"),
    ):
        assert missing in text
        assert remedy in text


def test_audits_become_figures_with_intervals(run):
    (run / "audits").mkdir()
    audit = {"false_positives": 0, "num_negatives": 100, "false_negatives": 5, "num_positives": 50, "passed": True}
    (run / "audits/verifier.json").write_text(json.dumps(audit))
    gain = {"mean": 0.01, "low": -0.02, "high": 0.04}
    controls = {"normal": gain, "shuffled": {"11": gain}, "sft_only": None, "verdict": ["not measured: too few tasks"]}
    (run / "audits/controls.json").write_text(json.dumps(controls))
    text = Outline(html_of(run)).text
    assert "5 of 50" in text
    assert "0.100 [0.043, 0.214]" in text  # Wilson for 5 of 50
    assert "rewards shuffled, seed 11" in text
    assert "+0.010 [-0.020, +0.040]" in text
    assert "not measured: too few tasks" in text


def test_the_last_update_is_explained_in_the_words_of_why(html):
    outline = Outline(html)
    assert "step-1" in outline.ids
    assert "coefficient +0.5: its own term of the loss pushes its log probability up" in outline.text
    assert "coefficient -0.5: its own term of the loss pushes its log probability down" in outline.text
    assert "verifier: task_success 1" in outline.text


def test_refused_groups_are_listed_with_their_reason_and_stratum(html):
    text = Outline(html).text
    assert "discarded: deadline" in text
    assert "family drop" in text


def test_tampering_in_quarantine_is_the_verdict_until_a_person_releases_it(run):
    entry = Entry(
        at=1.0,
        trajectory_id="x_0",
        group_id="x",
        task_id="t",
        family="f",
        length="8-15",
        reason=Reason.TAMPERED,
        error="e",
        final_state_hash="sha256:0",
        reward=None,
    )
    Quarantine(run).add(entry)
    figure = axis(run, "Safety and side effects")
    assert (figure.state, figure.word) == ("bad", "tampering")
    assert "1 episodes, 1 for tampering" in figure.text
    Quarantine(run).release("x_0", "someone", "a false alarm")
    assert axis(run, "Safety and side effects").word != "tampering"


def test_two_runs_are_paired_and_their_differences_stated_at_the_top(tmp_path):
    a = reported.make_run(tmp_path / "a", successes=(2, 2))
    b = reported.make_run(tmp_path / "b", successes=(2, 6), credit__estimator="grpo")
    shutil.rmtree(b / "manifests")
    (b / "policies.sqlite").unlink()
    reported.publish(b, step_budget=9)
    page = page_of(measure([a, b]))
    assert page.sections[0].id == "comparison"
    (table,) = [block for block in page.sections[0].blocks if block.kind == "table"]
    name, tasks, first, last, gain = table.rows[0]
    assert (name, tasks) == ("all held-out, temperature 1", "4")
    assert first.startswith("+0.000") and last.startswith("+0.500") and gain.startswith("+0.500")
    assert any("step budget was 8, is 9" in warning for warning in page.warnings)
    assert any("credit.estimator is rloo in A, grpo in B" in warning for warning in page.warnings)
    assert "A and B on the same tasks" in html_of(a, b)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    result = call(tmp_path)
    assert result.exit_code == 2
    assert "evaluation.run" in result.output


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("experiment.yaml", "a: 1\n", "a whole section `contract`"),
        ("experiment.yaml", "contract: {run: {}}\n", "a whole section `contract`"),
        ("experiment.yaml", "{", "a readable file"),
        ("audits/verifier.json", "{}", "missing required field `false_positives`"),
        ("audits/verifier.json", "{", "truncated"),
        ("audits/controls.json", '{"normal": {"mean": 0.1}}', "low"),
        ("ledger.sqlite", "this is no database, whatever its name says", "not a database"),
        ("policies.sqlite", "this is no database, whatever its name says", "not a database"),
        ("metrics.jsonl", "{}\n{}\n", "evaluation.metrics"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, name, content, message):
    reported.write_experiment(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    result = call(tmp_path)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert message in result.output


def test_metrics_without_a_line_are_said_to_be_missing(run):
    (run / "metrics.jsonl").write_text("")
    text = Outline(html_of(run)).text
    assert "no metrics" in text
    assert "actor/kl_loss: no step logged it" in text


def test_a_run_that_was_just_started_says_what_is_missing(tmp_path):
    reported.write_experiment(tmp_path)
    text = Outline(html_of(tmp_path)).text
    assert "the run is not whole: 0 of 1" in text
    assert "the run holds no held-out episode" in text
    assert "the run made no update" in text
    assert "no metrics" in text


def test_one_evaluation_shows_no_gain(tmp_path):
    run = reported.make_run(tmp_path / "run")
    part = next((run / "trajectories").iterdir())
    content = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(content[: len(content) // 3]))
    figure = axis(run, "Capability")
    assert figure.word == "gain not measured"
    assert "trainer.test_freq" in figure.text


def test_a_torn_record_is_reported_and_a_changed_one_refused(run):
    part = next((run / "trajectories").iterdir())
    whole = part.read_bytes()
    part.write_bytes(whole + b'{"schema')
    assert "part-a.jsonl, line" in Outline(html_of(run)).text
    part.write_bytes(whole.replace(b'"seed":3', b'"seed":4', 1))
    result = call(run)
    assert result.exit_code == 2
    assert "transition.records" in result.output


def test_values_that_are_not_finite_are_named_and_in_no_figure(run):
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step":2,"data":{"actor/grad_norm":NaN,"actor/kl_loss":Infinity}}\n')
    text = Outline(html_of(run)).text
    assert "2 logged values are not finite" in text
    assert "actor/grad_norm" in text


def test_figures_for_a_metrics_store_are_those_of_the_page(whole):
    (measured,) = measure([whole])
    found = figures(measured)
    assert found["report/heldout/success"] == 0.75
    assert found["report/heldout/gain"] == 0.5
    assert found["report/heldout/gain/low"] <= 0.5 <= found["report/heldout/gain/high"]
    assert sum(value for name, value in found.items() if name.startswith("report/gates/")) == 19


def contrast(one, other):
    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_and_lines_stand_out_from_their_background_by_day_and_by_night():
    style = (TEMPLATES / "report.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(blocks) == 3  # day, night, print
    day: dict[str, str] = {}
    for block in blocks:
        colors = {**day, **dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3,6});", block))}
        day = day or colors
        full = {
            name: value if len(value) == 7 else "#" + "".join(c * 2 for c in value[1:])
            for name, value in colors.items()
        }
        for name in ("text", "soft", "link", "good", "bad", "open", *(f"s{n}" for n in range(8))):
            for back in ("page", "panel"):
                assert contrast(full[name], full[back]) >= 4.5, (name, back)
        for back in ("good-back", "bad-back", "open-back"):
            assert contrast(full["text"], full[back]) >= 4.5


@pytest.mark.parametrize("width", [1280, 390])
def test_chromium_renders_it_without_sideways_scrolling(html, width, tmp_path):
    program = shutil.which("chromium")
    assert program is not None, "chromium is missing: apt-get install chromium (Debian package)"
    page = tmp_path / "page.html"
    # The report has no script; this copy measures itself. A window cannot be narrower than 500 px, a frame can.
    inside = html.replace("&", "&amp;").replace('"', "&quot;")
    page.write_text(
        f'<iframe id="f" style="border:0" width="{width}" height="900" srcdoc="{inside}"></iframe><script>'
        "const f = document.getElementById('f'); f.onload = () => { const d = f.contentDocument.documentElement;"
        "const charts = f.contentDocument.querySelectorAll('figure > svg').length;"
        "document.title = [d.scrollWidth, d.clientWidth, charts].join()"
        "}</script>"
    )
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
        "--window-size=1400,1000",
    ]
    command = [program, *flags, "--virtual-time-budget=5000", "--dump-dom", page.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r"<title>(\d+),(\d+),(\d+)</title>", dumped)
    assert found is not None, dumped[:500]
    scrolled, visible, num_charts = map(int, found.groups())
    assert scrolled <= visible <= width
    assert num_charts >= 10


def test_every_record_of_the_page_is_frozen():
    from recipe.agent_contracts.evaluation.report import page

    kinds = [kind for kind in vars(page).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    assert kinds and all(kind.__struct_config__.frozen for kind in kinds)
