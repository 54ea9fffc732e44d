"""Milvus Lite for tests, as a server of its own that can be killed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil


@dataclass
class MilvusProcess:
    """``milvus-lite server`` on a port of 127.0.0.1, which keeps its data where it is killed and started again."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, longest_file: int | None = None) -> None:
        """Wait until it listens; with ``longest_file`` bytes, its disk is as good as full above them."""
        if not self.port:
            with closing(socket.socket()) as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "milvus_lite", "server", "--data-dir", self.folder, "--host", "127.0.0.1"]
        self.process = subprocess.Popen(
            [*map(str, command), "--port", str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if longest_file is not None:
            psutil.Process(self.process.pid).rlimit(psutil.RLIMIT_FSIZE, (longest_file, longest_file))
        for _ in range(600):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.1)
        raise AssertionError("the server does not listen")

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
