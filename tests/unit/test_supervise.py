"""A supervised run: its flood is in the log, its exit code is kept, nothing of it is left."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from recipe.agent_contracts.supervise import run_supervised

# A child that leaves a grandchild behind in a session of its own, as Ray does.
LEAVES_ORPHAN = """
import subprocess, sys
orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print("orphan", orphan.pid, flush=True)
sys.exit(7)
"""


def orphan_of(log: Path) -> int:
    return int(log.read_text().split()[1])


def test_the_exit_code_is_kept_and_no_orphan_outlives_the_run(tmp_path):
    log = tmp_path / "log"
    finished = run_supervised([sys.executable, "-c", LEAVES_ORPHAN], log, tmp_path / "metrics", 1)
    assert finished.exit_code == 7
    assert not psutil.pid_exists(orphan_of(log))


def test_cpu_time_of_the_whole_tree_is_counted(tmp_path):
    busy = "import time; end = time.process_time() + 1.5\nwhile time.process_time() < end: pass"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    finished = run_supervised([sys.executable, "-c", nested], tmp_path / "log", tmp_path / "metrics", 1)
    assert 0.5 < finished.cpu_seconds < 10


@pytest.mark.timeout(120)
def test_ctrl_c_ends_everything_that_was_started(tmp_path):
    log = tmp_path / "log"
    waits = LEAVES_ORPHAN.replace("sys.exit(7)", "import time; time.sleep(300)")
    code = (
        "from pathlib import Path\nimport sys\nfrom recipe.agent_contracts.supervise import run_supervised\n"
        f"sys.exit(run_supervised([sys.executable, '-c', {waits!r}], Path({str(log)!r}), Path('none'), 1).exit_code)"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    for _ in range(300):
        if log.exists() and log.read_text().startswith("orphan"):
            break
        time.sleep(0.1)
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(60) == 130
    assert not psutil.pid_exists(orphan_of(log))
