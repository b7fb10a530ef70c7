"""A Dask cluster on loopback: a scheduler and nodes (a nanny with its worker), each a process group of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# As docs/scale.md recommends: memory that a worker frees is kept for its next block, and nobody watches its threads.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": 268435456, "MALLOC_MMAP_THRESHOLD_": 67108864}
SETTINGS = {
    "DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON": json.dumps(KEEP_MEMORY),
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
}


class LoopbackCluster:
    """Started by `with`; nodes can be killed and added while it runs."""

    def __init__(self, folder: Path, nodes: int = 2, **settings: str) -> None:
        self.folder = folder
        self.settings = settings  # more of Dask's, as variables of the environment
        self.file = folder / "scheduler.json"
        self.count = nodes
        self.nodes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> LoopbackCluster:
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(self.file))
        deadline = time.monotonic() + 60
        while not (self.file.exists() and self.file.stat().st_size):
            assert self.scheduler.poll() is None, self.log("scheduler")
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.1)
        self.address = str(json.loads(self.file.read_text())["address"])
        for _ in range(self.count):
            self.add_node()
        return self

    def __exit__(self, *error: object) -> None:
        for process in [*self.nodes, self.scheduler]:
            _kill_group(process)

    def add_node(self) -> None:
        """Start one more node with a single worker of one thread."""
        self.nodes.append(self._start("worker", self.address, "--nthreads", "1", "--nworkers", "1"))

    def kill_worker(self, node: int) -> None:
        """Kill a node's worker process; its nanny starts another."""
        for child in worker_processes(self.nodes[node].pid):
            os.kill(child, signal.SIGKILL)

    def kill_scheduler(self) -> None:
        """Kill the one that hands out the work."""
        _kill_group(self.scheduler)

    def kill_node(self, node: int) -> None:
        """Kill nanny and worker at once, as when a machine goes down."""
        _kill_group(self.nodes.pop(node))

    def peak_memory(self) -> list[float]:
        """Most memory that each worker process held, in MB."""
        lines: list[str] = []
        for pid in (pid for node in self.nodes for pid in worker_processes(node.pid)):
            with contextlib.suppress(OSError):  # one that was killed may vanish meanwhile
                lines += Path(f"/proc/{pid}/status").read_text().splitlines()
        return sorted(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))

    def log(self, name: str) -> str:
        """What processes of a kind said."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob(f"{name}-*.log")))

    def _start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"{what}-{len(self.nodes)}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "dask", what, *arguments]
        command += ["--host", "127.0.0.1", "--no-dashboard"]
        with open(log, "wb") as stream:
            return subprocess.Popen(
                command,
                stdout=stream,
                stderr=stream,
                cwd=self.folder,
                env={**os.environ, **SETTINGS, **self.settings},
                start_new_session=True,
            )


def worker_processes(nanny: int) -> list[int]:
    """Processes that a nanny started and that are Dask workers."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            command = (status.parent / "cmdline").read_bytes()
            if parent == nanny and b"resource_tracker" not in command:
                found.append(int(status.parent.name))
    return found


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
