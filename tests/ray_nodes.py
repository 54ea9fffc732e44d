"""Real Ray nodes for tests, on 127.0.0.1 or in network namespaces of their own, of which nothing stays behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import PATIENCE, environment

#: Without it, Ray listens on the machine's outward address even when it is told 127.0.0.1. Before ray is imported.
_OUTWARD = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_AUTH = "RAY_AUTH_MODE"  # a machine where Ray was used may hold a token, and its heads would ask for it
os.environ.setdefault(_OUTWARD, "0")
os.environ.setdefault(_AUTH, "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
HERE = Path(__file__).parent
_MARK = "DRAGIN_LAB_TEST_CLUSTER"
_QUICK = {  # a dead node is noticed in seconds, and a busy machine neither ends workers nor lets them wait
    "RAY_health_check_initial_delay_ms": "5000", "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000", "RAY_health_check_failure_threshold": "4",
    "RAY_memory_monitor_refresh_ms": "0", "RAY_gcs_rpc_server_reconnect_timeout_s": "5", "RAY_worker_niceness": "0",
}  # fmt: skip


class Nodes:
    """A head, to be found at ``address`` once it is started, and further nodes; ``inside`` runs commands beside it."""

    def __init__(self, folder: str, inside: Sequence[str] = (), host: str = "127.0.0.1") -> None:
        self.folder, self.inside, self.host = folder, list(inside), host
        self.address = f"{host}:{free_port()}"

    def start(self, cpus: int) -> None:
        """Start the head."""
        port = self.address.rpartition(":")[2]
        options = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self.folder}"]
        self._start(options, self.host, cpus, self.inside)

    def join(self, inside: Sequence[str], host: str, cpus: int) -> None:
        """Add a node."""
        self._start([f"--address={self.address}"], host, cpus, inside)

    def _start(self, options: list[str], host: str, cpus: int, inside: Sequence[str]) -> None:
        command = [
            *inside, sys.executable, "-m", "ray.scripts.scripts", "start", *options, f"--node-ip-address={host}",
            f"--num-cpus={cpus}", "--num-gpus=1", "--object-store-memory=80000000", "--include-log-monitor=false",
            "--disable-usage-stats",
        ]  # fmt: skip
        said = ""
        for _ in range(3):  # a node that is slow to start, on a busy machine, gives itself up
            began = subprocess.run(command, env=self.environment(), capture_output=True, text=True)
            if began.returncode == 0:
                return
            said = began.stdout + began.stderr
            if "--head" in options:
                end(self.processes())
        raise RuntimeError(f"Ray did not start:\n{said[-2000:]}")

    def environment(self) -> dict[str, str]:
        """Of a node, and of a program that connects to it."""
        tests = f"{HERE.parent}{os.pathsep}{HERE}"
        found = environment(PYTHONPATH=tests, RAY_TMPDIR=self.folder, **{_MARK: self.folder}, **_QUICK)
        if self.host != "127.0.0.1":
            del found[_OUTWARD]
        return found

    def run(self, address: str, *args: object) -> subprocess.Popen[str]:
        """A program beside the head: ``tests/clustered.py`` with these arguments."""
        command = [*self.inside, sys.executable, str(HERE / "clustered.py"), address, *map(str, args)]
        env = self.environment()
        if address == "local":
            del env[_OUTWARD]  # it has to see to that itself
        return subprocess.Popen(command, env=env, text=True, stderr=subprocess.PIPE)

    def processes(self, name: str = "") -> list[psutil.Process]:
        """Those of the cluster, workers included; those of which the command line holds a text."""
        return [p for p in marked(self.folder) if name in _command(p)]


@contextmanager
def started(cpus: int) -> Iterator[Nodes]:
    """A head of its own, or with 0 CPUs its folder alone; skips where ray is not installed."""
    pytest.importorskip("ray", reason="ray is not installed")
    with _folder() as folder:
        nodes = Nodes(folder)
        if cpus:
            nodes.start(cpus)
        yield nodes


@contextmanager
def two_nodes() -> Iterator[tuple[Nodes, Callable[[], object] | None]]:
    """A head and another node with a CPU each, each in a network namespace of its own, and what cuts the wire between.

    Where namespaces cannot be made (they take root and the program ip) there is the head alone, on 127.0.0.1: Ray lets
    no second node join there.
    """
    pytest.importorskip("ray", reason="ray is not installed")
    with ExitStack() as stack:
        a, b = (f"dl{os.getpid()}{end}" for end in "ab")
        if not all(_namespace(stack, name) for name in (a, b)):
            yield stack.enter_context(started(cpus=1)), None
            return
        wire = [["link", "add", f"{a}v", "netns", a, "type", "veth", "peer", "name", f"{b}v", "netns", b]]
        for name, host in ((a, "10.77.0.1"), (b, "10.77.0.2")):
            wire += [["-n", name, "addr", "add", f"{host}/24", "dev", f"{name}v"]]
            wire += [["-n", name, "link", "set", device, "up"] for device in (f"{name}v", "lo")]
        for one in wire:
            subprocess.run(["ip", *one], check=True)
        nodes = Nodes(stack.enter_context(_folder()), ["ip", "netns", "exec", a], "10.77.0.1")
        nodes.start(cpus=1)
        nodes.join(["ip", "netns", "exec", b], "10.77.0.2", cpus=1)
        yield nodes, lambda: subprocess.run(["ip", "-n", a, "link", "set", f"{a}v", "down"], check=True)


def _namespace(stack: ExitStack, name: str) -> bool:
    """Make a network namespace that ends with the stack; whether that could be."""
    if not shutil.which("ip") or subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
    return True


@contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="dlt", dir="/tmp")  # sockets stand in it, whose paths may have 107 bytes
    try:
        yield folder
    finally:
        end(marked(folder))
        shutil.rmtree(folder, ignore_errors=True)


def marked(folder: str) -> list[psutil.Process]:
    """The processes, other than this one, that were started with this folder in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(_MARK) == folder:
                found.append(process)
        except psutil.Error:
            continue  # it has ended, or is somebody else's
    return found


def end(processes: list[psutil.Process]) -> None:
    """Kill them, and wait until they have gone."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=PATIENCE)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


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
