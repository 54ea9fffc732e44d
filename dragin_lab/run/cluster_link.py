"""The connection to a Ray cluster: found or started, checked before it is used, watched while it is.

Only ``cluster`` and this module import ray, when a cluster is opened.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from dragin_lab.errors import DraginLabError, MissingPackageError, SettingError

#: Seconds that an address is given to answer.
ANSWERS_WITHIN = 5.0
#: Seconds between two looks at the head, and how long it may be away. Behind 60 Ray itself would end this process.
LOOK_EVERY, AWAY = 2.0, 10.0
#: How often Ray is started before it is given up: on a busy machine it gives itself up after 15 seconds.
STARTS = 3
#: Bytes of shared memory for results on their way, where this module starts Ray itself; more goes to disk.
STORE = 200_000_000
#: Ray's own switch for laptops: without it, Ray listens on the machine's outward address whatever it is told.
_OUTWARD = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
#: Ray asks for a token in a cluster that ``ray.init`` starts, and leaves this set for all later ones of the process.
_AUTH_MODE = "RAY_AUTH_MODE"


class ClusterError(DraginLabError):
    """A cluster that cannot be reached, that has gone, or whose workers are not what they should be."""


def import_ray() -> Any:
    """The package; ``MissingPackageError`` where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("a cluster needs ray; pip install 'dragin_lab[cluster]'") from error
    return ray


class Link:
    """A process's connection to a cluster; ``local`` starts one on this machine that ends with it.

    ``need`` is what one worker takes (CPU, GPU), ``actors`` how many are wanted, None for as many as there is room for.
    """

    def __init__(self, address: str, need: dict[str, float], actors: int | None) -> None:
        self.address, self.local = address.strip(), address.strip() == "local"
        self.ray = import_ray()
        self._folder: str | None = None
        self._ours = False
        self._looked = self._seen = time.monotonic()
        check_address(self.address)
        if self.ray.is_initialized():
            if self.address != "auto":
                raise ClusterError(
                    f"this process is connected to Ray already, so it cannot connect to {self.address!r}; give 'auto' "
                    "for the cluster it is connected to, or call ray.shutdown() first"
                )
        else:
            self._connect(need, actors)
        self.head = str(self.ray.get_runtime_context().gcs_address)

    def _connect(self, need: dict[str, float], actors: int | None) -> None:
        # Ray prints pages about a lost worker on the standard output, where our tables go; we say it ourselves.
        self.ray._private.worker.listen_error_messages = lambda *_: None
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        for left in reversed(range(STARTS if self.local else 1)):
            try:
                if self.local:
                    self._start(max(os.cpu_count() or 1, math.ceil((actors or 1) * need["CPU"])), quiet)
                else:
                    self.ray.init(address=self.address, **quiet)
                self._ours = True
                return
            except Exception as error:  # whatever Ray raises here, it has no class of its own
                self.close()
                if not left:
                    raise ClusterError(_not_connected(self.address, error)) from error
            except BaseException:  # Ctrl-C while it starts
                self.close()
                raise

    def _start(self, cpus: int, quiet: dict[str, Any]) -> None:
        self._folder = tempfile.mkdtemp(prefix="dlray", dir=os.environ.get("RAY_TMPDIR", "/tmp"))
        with _this_machine_only():
            self.ray.init(
                address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=STORE,
                _temp_dir=self._folder, _node_ip_address="127.0.0.1", **quiet,
            )  # fmt: skip

    def close(self) -> None:
        """Leave the cluster, or end the one that was started."""
        if self._ours:
            self.ray.shutdown()
            self._ours = False
        if self._folder is not None:
            _end_all(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def watch(self) -> None:
        """Raise ``ClusterError`` where the head, or this machine's own node, has been away for ``AWAY`` seconds."""
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        if answers(self.head, 1.0):
            self._seen = time.monotonic()
        elif now - self._seen >= AWAY:
            raise ClusterError(
                f"the head of the cluster, {self.head}, has not answered for {now - self._seen:.0f} seconds; "
                "start it again ('ray start --head')"
            )

    def resources(self) -> tuple[dict[str, float], dict[str, float]]:
        """What the cluster has in all, and what of it is free: CPU, GPU."""
        total, free = self.ray.cluster_resources(), self.ray.available_resources()
        return tuple({name: found.get(name, 0.0) for name in ("CPU", "GPU")} for found in (total, free))  # type: ignore[return-value]


def _end_all(folder: str) -> None:
    """End whatever still works in this folder: a start that was given up leaves processes that Ray has forgotten."""
    import psutil  # ray brings it

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and any(folder in part for part in process.cmdline()):
                process.kill()
                found.append(process)
    psutil.wait_procs(found, timeout=5)


def check_address(address: str) -> None:
    """Raise where nothing can be there, at once: Ray itself tries for minutes, and may end the process."""
    if address in ("local", "auto"):
        return
    if "://" in address:
        raise SettingError(
            f"address {address!r}: connect from a machine of the cluster (its head's HOST:PORT, as 'ray start' printed "
            "it), or send the command there with 'ray job submit'"
        )
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SettingError(
            f"address {address!r}: give the head's HOST:PORT, such as 10.0.0.5:6379, 'auto' for the cluster of this "
            "machine, or 'local' to start one here"
        )
    if not answers(address, ANSWERS_WITHIN):
        raise ClusterError(
            f"nobody answers at {address}; start a cluster there ('ray start --head --port={port}'), or give the "
            "address that 'ray start' printed"
        )


def answers(address: str, seconds: float) -> bool:
    """Whether something accepts connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds):
            return True
    except OSError:
        return False


def _not_connected(address: str, error: Exception) -> str:
    said = " ".join(str(error).split()) or type(error).__name__
    where = "Ray could not be started here" if address == "local" else f"no connection to the cluster {address!r}"
    if "node info" in said or "not found" in said.lower():
        said += (
            " (this machine must be a node of the cluster: 'ray start --address=HEAD:PORT --num-cpus=0' makes it one)"
        )
    elif address != "local" and _AUTH_MODE not in os.environ:
        said += f" (where its head asks for a token, set {_AUTH_MODE}=token)"
    return f"{where}: {said[:600]}"


@cache
def _token() -> str:
    """One for the whole process: Ray reads the first it is given and keeps to it, whatever a later start is given."""
    return secrets.token_hex(32)


@contextmanager
def _this_machine_only() -> Iterator[None]:
    """Let Ray listen on 127.0.0.1 alone, and to those who know a token that no file holds."""
    from ray._private import ray_constants

    wanted = {_OUTWARD: "0", "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or _token()}
    before, there = ray_constants.ENABLE_RAY_CLUSTER, {name: os.environ.get(name) for name in (*wanted, _AUTH_MODE)}
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ |= wanted
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        for name, value in there.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
