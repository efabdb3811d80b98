"""Nodes of a Ray cluster on this machine, each a `ray start` in a process of its own."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.toys.loopback_http import free_port


class RayNodes:
    """A cluster that asks for a token, and is up inside `with`.

    Args:
        cpus: of the head.
    """

    def __init__(self, cpus):
        self.address = f"127.0.0.1:{free_port()}"
        # Ray's sockets have short paths only, so the folder is no tmp_path of pytest.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_TMPDIR": str(self.folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
        }
        self._cpus = cpus
        self._nodes = []

    def add(self, cpus, *options):
        """Starts a node and waits until it is up; gives its number, by which `kill` knows it."""
        command = [Path(sys.executable).with_name("ray"), "start", "--block", "--node-ip-address=127.0.0.1"]
        command += [f"--num-cpus={cpus}", f"--object-store-memory={80 * 2**20}", *options]
        log = self.folder / f"node-{len(self._nodes)}.log"
        with log.open("wb") as output:
            environment = {**os.environ, **self.environment}
            node = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        self._nodes.append(node)
        until = time.monotonic() + 100
        while "Ray runtime started" not in log.read_text(errors="replace"):
            if node.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no node was started:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        return len(self._nodes) - 1

    def kill(self, node):
        processes = [*psutil.Process(self._nodes[node].pid).children(recursive=True), self._nodes[node]]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._nodes[node].wait()

    def workers(self):
        found = []
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if " ".join(process.cmdline()).startswith("ray::MapWorker(MapBatches(PartScorer))"):
                    found.append(process)
        return found

    def __enter__(self):
        self.add(self._cpus, "--head", f"--port={self.address.partition(':')[2]}", "--include-dashboard=false")
        return self

    def __exit__(self, *_):
        for number, node in enumerate(self._nodes):
            if node.poll() is None:
                self.kill(number)
        shutil.rmtree(self.folder, ignore_errors=True)
