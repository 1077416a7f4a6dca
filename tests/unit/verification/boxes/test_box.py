"""What every box does, on the strongest one that this machine gives: files, limits, threads, users, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from recipe.agent_contracts.errors import GuaranteeUnavailable, VerifierFailure
from recipe.agent_contracts.verification.boxes import choose
from recipe.agent_contracts.verification.boxes.base import PYTHON, PYTHON_FROM_SOURCE, Limits
from recipe.agent_contracts.verification.boxes.bubblewrap import Bubblewrap
from recipe.agent_contracts.verification.boxes.bubblewrap_uid import FIRST_UID, LAST_UID
from recipe.agent_contracts.verification.boxes.canonical import Canonical
from recipe.agent_contracts.verification.boxes.guarantee import REQUIRED_BY_DEFAULT, Guarantee

try:
    BOX = choose.open_box(REQUIRED_BY_DEFAULT | {Guarantee.AGENT_CODE})
except GuaranteeUnavailable as unavailable:
    pytest.skip(str(unavailable), allow_module_level=True)


def python(program: str, **options):
    return BOX.run([*PYTHON, "-c", program], **options)


def commands_with(token: str) -> dict[int, int]:
    """Processes of the host that have an argument, and the user of each."""
    found = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if token in (process / "cmdline").read_text(errors="replace").split("\0"):
                    found[int(process.name)] = process.stat().st_uid
            except OSError:
                continue
    return found


def test_a_command_gets_its_files_and_input_and_gives_its_outputs_and_status():
    program = "import os, sys; print(sys.stdin.read(), open('d/x').read(), os.listdir())\n"
    program += "print('e', file=sys.stderr); sys.exit(3)"
    done = BOX.run([*PYTHON, "-c", program], {"d/x": b"content"}, b"input")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"input content ['d']\n", b"e\n")
    assert not done.truncated and not done.timed_out


def test_files_are_read_only_unless_a_private_copy_is_asked_for():
    write = "open('x', 'w').write('changed'); print(open('x').read())"
    assert BOX.run([*PYTHON, "-c", write], {"x": b"content"}).returncode == 1
    assert BOX.run([*PYTHON, "-c", write], {"x": b"content"}, writable=True).stdout == b"changed\n"


def test_files_of_the_host_are_readable_where_they_are_named(tmp_path):
    file = tmp_path / "named"
    file.write_text("content")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    show = f"print(open({str(file)!r}).read())"
    assert python(show).returncode == 1
    assert python(show, readable=[tmp_path]).stdout == b"content\n"


def test_input_and_output_larger_than_a_pipe_pass():
    data = os.urandom(1 << 19)
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert python(echo, stdin=data).stdout == data
    assert python("print('nothing was read')", stdin=data).stdout == b"nothing was read\n"


def test_output_is_cut_at_its_limit_and_the_box_ended():
    done = python("while True: print('x' * 1000)", limits=Limits(output_bytes=5000))
    assert (len(done.stdout), done.truncated, done.timed_out) == (5000, True, False)
    exact = python("import os; os.write(1, b'x' * 5000)", limits=Limits(output_bytes=5000))
    assert (len(exact.stdout), exact.truncated, exact.returncode) == (5000, False, 0)


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(250)",
        "import os, time; os.close(1), os.close(2), time.sleep(250)",
        "import os\nwhile True: os.write(1, b'x')",
    ],
)
def test_a_command_is_ended_at_its_time_limit(program):
    assert python(program, limits=Limits(seconds=1.0, output_bytes=1 << 30)).timed_out


TAKES_ITS_OUTPUT_BACK_AND_FILLS_ITS_INPUT = """
import os
def other_end(number, way):
    try: return os.open(f'/proc/self/fd/{number}', way | os.O_NONBLOCK)
    except OSError: return 99  # the pipe is another user's
back, more = other_end(1, os.O_RDONLY), other_end(0, os.O_WRONLY)
while True:
    for call, arguments in ((os.write, (1, b'x')), (os.read, (back, 1)), (os.write, (more, b'x'))):
        try: call(*arguments)
        except OSError: pass
"""


def test_a_command_that_holds_both_ends_of_its_pipes_is_ended_at_its_time_limit():
    limits = Limits(seconds=1.0, output_bytes=1 << 30)
    assert python(TAKES_ITS_OUTPUT_BACK_AND_FILLS_ITS_INPUT, stdin=bytes(1 << 20), limits=limits).timed_out


def test_a_worker_answers_until_it_is_ended_and_leaves_no_process_and_no_file(monkeypatch, tmp_path):
    tmp_path.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    token = f"{900 + time.monotonic_ns() % 10**9 / 10**9:.9f}"
    program = f"import subprocess, sys; subprocess.Popen(['/usr/bin/sleep', '{token}'], start_new_session=True)\n"
    program += "for line in sys.stdin: print(line.upper(), end='', flush=True)"
    running = BOX.start([*PYTHON, "-c", program], {"x": b""})
    for word in (b"one\n", b"two\n"):
        running.stdin.write(word)
        running.stdin.flush()
        assert running.stdout.readline() == word.upper()
    assert running.poll() is None and len(commands_with(token)) == 1 and any(tmp_path.iterdir())
    status = running.end()
    assert running.end() == status
    assert commands_with(token) == {} and not any(tmp_path.iterdir())


def test_a_box_outlives_the_thread_that_asked_for_it():
    started = []
    thread = threading.Thread(target=lambda: started.append(BOX.start([*PYTHON, "-c", "input()"])))
    thread.start()
    thread.join()
    with started[0] as running:
        time.sleep(0.5)
        assert running.poll() is None


def test_a_box_dies_with_the_process_that_asked_for_it(tmp_path):
    tmp_path.chmod(0o711)
    token = f"{900 + time.monotonic_ns() % 10**9 / 10**9:.9f}"
    program = (
        "from recipe.agent_contracts.verification.boxes import choose\n"
        f"running = choose.open_box().start(['/usr/bin/sleep', '{token}'])\n"
        "print('started', flush=True); input()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes) as owner:
        assert owner.stdout.readline() == b"started\n"
        assert commands_with(token)
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while commands_with(token) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert commands_with(token) == {}


def test_a_fork_of_the_caller_can_open_boxes_too():
    reading, writing = os.pipe()
    assert python("print(1)").stdout == b"1\n"
    child = os.fork()
    if child == 0:
        os.write(writing, python("print(2)").stdout)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        assert answer.read() == b"2\n"
    os.waitpid(child, 0)


@pytest.mark.skipif(Guarantee.INDEPENDENT_UID not in BOX.guarantees, reason="boxes run as the caller here")
def test_on_the_host_the_user_of_a_box_is_nobody_who_owns_anything():
    tokens = [f"{900 + time.monotonic_ns() % 10**9 / 10**9:.9f}" for _ in range(2)]
    with BOX.start(["/usr/bin/sleep", tokens[0]]), BOX.start(["/usr/bin/sleep", tokens[1]]):
        users = {user for token in tokens for user in commands_with(token).values()}
    assert all(FIRST_UID <= user <= LAST_UID for user in users - {0})
    # A pid namespace's first process may have the command line of its child; the command itself is never root's.
    assert users and 0 not in users


@pytest.mark.skipif(Guarantee.PIDS_HIDDEN not in BOX.guarantees, reason="processes of the user are counted together")
def test_the_process_limit_counts_one_box_alone():
    fork = "import os, time\nfor _ in range(5):\n    if os.fork() == 0: time.sleep(60)\n"
    with BOX.start([*PYTHON, "-c", fork + "print('forked', flush=True); input()"], limits=Limits(processes=8)) as other:
        assert other.stdout.readline() == b"forked\n"
        assert python(fork + "print('forked')", limits=Limits(processes=8)).stdout == b"forked\n"


def test_the_interpreter_in_the_box_is_this_one():
    shown = json.loads(python("import json, sys; print(json.dumps([sys.version, sys.base_prefix]))").stdout)
    assert shown == [sys.version, os.path.realpath(sys.base_prefix)]


def test_forged_bytecode_is_not_read_where_the_source_shall_count(tmp_path):
    import py_compile

    (tmp_path / "evil.py").write_text("answer = 'forged'")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    forged = py_compile.compile(str(tmp_path / "evil.py"), cfile=str(tmp_path / "c"), invalidation_mode=unchecked)
    tag = sys.implementation.cache_tag
    files = {"m.py": b"answer = 'source'", f"__pycache__/m.{tag}.pyc": Path(forged).read_bytes()}
    show = ["-c", "import sys; sys.path.insert(0, '.'); import m; print(m.answer)"]
    assert BOX.run([*PYTHON, *show], files).stdout == b"forged\n"
    assert BOX.run([*PYTHON_FROM_SOURCE, *show], files).stdout == b"source\n"


def test_a_command_that_is_not_there_is_a_failure_of_the_box():
    with pytest.raises(VerifierFailure, match="FileNotFoundError"):
        BOX.run(["/usr/bin/no-such-program"])


@pytest.mark.parametrize("path", ["../x", "/x", "a/../x", "a//x", "."])
def test_files_stay_below_the_working_folder(path):
    with pytest.raises(ValueError, match="not a path"):
        python("", files={path: b""})


def test_no_agent_code_runs_in_a_plain_process_but_trusted_workers_do():
    with pytest.raises(GuaranteeUnavailable, match="agent_code"):
        Canonical().run([*PYTHON, "-c", "print(1)"])
    with Canonical().start([*PYTHON, "-c", "import os; print(sorted(os.environ))"]) as worker:
        assert worker.stdout.readline() == b"['HOME', 'LANG', 'PATH']\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="about root")
def test_root_gets_no_box_that_would_be_root_on_the_host():
    with pytest.raises(VerifierFailure, match="root on the host"):
        Bubblewrap().run([*PYTHON, "-c", ""])
