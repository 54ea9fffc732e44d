"""A real Ray head for tests, on 127.0.0.1, of which nothing stays behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import PATIENCE, environment

#: Without it, Ray listens on the machine's outward address even when it is told 127.0.0.1. Before
#: ray is imported.
_OUTWARD = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# a machine where Ray was used may hold a token, and its heads would ask for it
_AUTH = "RAY_AUTH_MODE"
os.environ.setdefault(_OUTWARD, "0")
os.environ.setdefault(_AUTH, "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
HERE = Path(__file__).parent
_MARK = "DRAGIN_LAB_TEST_CLUSTER"


class Nodes:
    """A head on 127.0.0.1, to be found at ``address`` once it is started; its processes carry
    ``folder`` as a mark.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.address = folder, f"127.0.0.1:{free_port()}"
        tests = f"{HERE.parent}{os.pathsep}{HERE}"
        # A busy machine neither ends workers nor lets them wait.
        busy = {"RAY_memory_monitor_refresh_ms": "0", "RAY_worker_niceness": "0"}
        self.environment = environment(
            PYTHONPATH=tests, RAY_TMPDIR=folder, **{_MARK: folder}, **busy
        )

    def start(self, cpus: int) -> None:
        """Start the head."""
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            f"--port={self.address.rpartition(':')[2]}",
            "--include-dashboard=false",
            f"--temp-dir={self.folder}",
            "--node-ip-address=127.0.0.1",
            f"--num-cpus={cpus}",
            "--num-gpus=1",
            "--object-store-memory=80000000",
            "--include-log-monitor=false",
            "--disable-usage-stats",
        ]
        for _ in range(3):  # a node that is slow to start, on a busy machine, gives itself up
            began = subprocess.run(command, env=self.environment, capture_output=True, text=True)
            if began.returncode == 0:
                return
            self.end()
        raise RuntimeError(f"Ray did not start:\n{(began.stdout + began.stderr)[-2000:]}")

    def run(self, address: str, *args: object) -> subprocess.Popen[str]:
        """A program beside the head: ``tests/clustered.py`` with these arguments."""
        command = [sys.executable, str(HERE / "clustered.py"), address, *map(str, args)]
        env = {
            key: value
            for key, value in self.environment.items()
            if key != _OUTWARD or address != "local"
        }
        return subprocess.Popen(command, env=env, text=True, stderr=subprocess.PIPE)

    def processes(self, name: str = "") -> list[psutil.Process]:
        """Those of the cluster, workers included, of which the command line holds a text."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.pid != os.getpid() and process.environ().get(_MARK) == self.folder
                if marked and name in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue  # it has ended, or is somebody else's
        return found

    def end(self) -> None:
        """Kill all of them, and wait until they have gone."""
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=PATIENCE)


@contextmanager
def started(cpus: int) -> Iterator[Nodes]:
    """A head of its own, or with 0 CPUs its folder alone; skips where ray is not installed."""
    pytest.importorskip("ray", reason="ray is not installed")
    # sockets stand in it, whose paths may have 107 bytes
    folder = tempfile.mkdtemp(prefix="dlt", dir="/tmp")
    nodes = Nodes(folder)
    try:
        if cpus:
            nodes.start(cpus)
        yield nodes
    finally:
        nodes.end()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(condition: Any, seconds: float = PATIENCE) -> None:
    """Until it holds; an assertion where that takes longer."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)


def whole_lines(folder: Path) -> int:
    """How many predictions a run directory holds."""
    path = folder / "predictions.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0
