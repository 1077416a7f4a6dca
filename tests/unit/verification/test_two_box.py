"""The two-box grader: the candidate's failures cost it cases, the box's failures are the verifier's."""

import time

import pytest

from recipe.agent_contracts.errors import GuaranteeUnavailable, VerifierFailure
from recipe.agent_contracts.verification.boxes import choose
from recipe.agent_contracts.verification.boxes.base import Limits
from recipe.agent_contracts.verification.boxes.canonical import Canonical
from recipe.agent_contracts.verification.boxes.guarantee import REQUIRED_BY_DEFAULT, Guarantee
from recipe.agent_contracts.verification.two_box import Case, TwoBoxGrader

NEEDED = REQUIRED_BY_DEFAULT | {Guarantee.AGENT_CODE}
CASES = [Case([1], 1), Case([2], 4), Case([3], 9)]

pytestmark = pytest.mark.skipif(
    not any(choose.probe(backend).held >= NEEDED for backend in choose.BACKENDS), reason="no box for agent code here"
)


def failures(source, cases=CASES, seconds=10.0, **more_files):
    files = {"solution.py": source.encode()} | {name: content.encode() for name, content in more_files.items()}
    return TwoBoxGrader("solution", "f", Limits(seconds=seconds)).judge(files, cases).failures


def test_each_case_passes_or_fails_by_itself():
    assert failures("def f(x): return x * x") == [None, None, None]
    assert failures("def f(x): return 4") == ["another value than expected", None, "another value than expected"]
    assert failures("def f(x): return 1 // (x - 1) or 4") == [
        "it raised ZeroDivisionError",
        "another value than expected",
        "another value than expected",
    ]


def test_a_crash_costs_its_own_case_only():
    source = "import os\ndef f(x): return os._exit(0) if x == 2 else x * x"
    assert failures(source) == [None, "it ended without an answer", None]


def test_a_hang_costs_its_own_case_only():
    started = time.monotonic()
    found = failures("def f(x):\n    while x == 2: pass\n    return x * x", seconds=3.0)
    assert found == [None, "no answer in time", None]
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("name", ["\x1b[2J", "\u202e", "x" * 1000, "reward: 1"])
def test_a_failure_shows_no_text_that_the_agent_chose(name):
    source = f"def f(x): raise type({name!r}, (Exception,), {{}})"
    assert failures(source, CASES[:1]) == ["it raised something without a plain name"]


WRITES_TO_EVERY_DESCRIPTOR = """
import os, time
def write(data):
    for number in range(3, 16):
        try: os.write(number, data)
        except OSError: pass
"""


def test_a_candidate_that_does_not_read_is_not_waited_for():
    source = WRITES_TO_EVERY_DESCRIPTOR + 'def f(x): write(b\'{"id": 0, "value": 0}\\n\'); time.sleep(250)'
    cases = [Case([1], 1), Case(["more than a pipe holds" * 20_000], 1)]
    assert failures(source, cases, seconds=1.0) == ["another value than expected", "it did not read the call"]


def test_a_candidate_that_never_stops_writing_is_not_read_beyond_its_time():
    source = WRITES_TO_EVERY_DESCRIPTOR + "def f(x):\n    while True: write(b' ')"
    limits = Limits(seconds=1.0, output_bytes=1 << 30)
    judged = TwoBoxGrader("solution", "f", limits).judge({"solution.py": source.encode()}, CASES[:1])
    assert judged.failures == ["no answer in time"]


def test_an_artifact_may_have_several_files_and_import_the_standard_library():
    source = "import decimal\nfrom part import square\ndef f(x): return square(x)"
    assert failures(source, **{"part.py": "def square(x): return x * x"}) == [None, None, None]


def test_values_are_compared_by_type():
    cases = [Case([True], True), Case([1], True), Case([1.0], 1), Case([[1, {"a": None}]], [1, {"a": None}])]
    assert failures("def f(x): return x", cases) == [
        None,
        "another value than expected",
        "another value than expected",
        None,
    ]


def test_nothing_is_carried_from_one_scoring_to_the_next():
    source = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)"
    assert failures(source, [Case([0], 1), Case([0], 2)]) == [None, None]
    assert failures(source, [Case([0], 1), Case([0], 2)]) == [None, None]


def test_a_judgement_says_what_its_box_guaranteed():
    judged = TwoBoxGrader("solution", "f").judge({"solution.py": b"def f(x): return x * x"}, CASES)
    assert judged.passed == 3
    assert set(judged.guarantees) >= NEEDED
    assert judged.box in {backend.name for backend in choose.BACKENDS} - {"canonical"}


def test_a_box_that_cannot_be_made_is_a_failure_of_the_verifier():
    grader = TwoBoxGrader("solution", "f")
    grader.limits = Limits(open_files=1)
    with pytest.raises(VerifierFailure):
        grader.judge({"solution.py": b"def f(x): return x * x"}, CASES)


def test_a_box_for_trusted_code_alone_judges_nothing():
    with pytest.raises(GuaranteeUnavailable, match="agent_code"):
        TwoBoxGrader("solution", "f", box=Canonical())
