"""A real reward service in processes of its own, and load on it, for tests and benchmarks."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.toys.loopback_http import free_port

ROOT = Path(__file__).resolve().parents[2]


class LoopbackService:
    """`capreward serve` with some options, in a process group of its own.

    Args:
        options: of the command, without `--port`.
        port: to listen on.
        environment: variables besides those of this process.
    """

    def __init__(self, *options, port=None, environment=None):
        self.options, self.port = options, port or free_port()
        self.environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1", **(environment or {})}
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = None

    @property
    def pid(self):
        """Of the process that was started, the parent of all others of the service."""
        assert self._process is not None
        return self._process.pid

    def start(self):
        command = [sys.executable, "-m", "reward.cli.main", "serve", *self.options, "--port", str(self.port)]
        self._process = subprocess.Popen(
            command, env=self.environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def wait(self, seconds=90.0):
        """Waits until it is ready; raises with its messages if it ended before."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError(f"the service ended with {self._process.returncode}: {self._process.stderr.read()}")
            if self.is_ready():
                return
            time.sleep(0.1)
        self.kill()
        raise RuntimeError(f"the service was not ready after {seconds:g} s")

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def stop(self, seconds=60.0):
        """Ends it by SIGTERM; gives its exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        finally:
            self.kill()

    def last_words(self, seconds=60.0):
        """Its messages, once it has ended by itself."""
        assert self._process is not None
        return self._process.communicate(timeout=seconds)[1]

    def kill(self):
        """Ends all its processes at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stderr.close()
            self._process = None

    def processes(self):
        """{pid: command line} of the processes of its group, also of those whose parent is gone."""
        group = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getpgid(int(entry.name)) == self.pid:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if command:  # a zombie has none
                        group[int(entry.name)] = command
            except OSError:
                continue
        return group

    def children(self):
        """Process numbers of those that answer, which are those that were spawned."""
        return [pid for pid, command in self.processes().items() if "spawn_main" in command]


def python_path():
    """PYTHONPATH of processes that run this clone."""
    given = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([str(ROOT), *given.split(os.pathsep)] if given else [str(ROOT)])


@contextmanager
def loopback_service(*options, **settings):
    """A service that is ready; all its processes are killed at the end."""
    service = LoopbackService(*options, **settings)
    service.start()
    try:
        service.wait()
        yield service
    finally:
        service.kill()
