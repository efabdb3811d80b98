"""Servers in processes of their own on the loopback interface: engines, and `capreward serve`."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from tests.toys.loopback_http import free_port

ROOT = Path(__file__).resolve().parents[2]


class ServerProcess:
    """A server in a process group of its own, which is up inside `with`.

    Args:
        command: of the server; `{port}` stands for the port.
        environment: variables besides those of this process.
        log: file that takes what it prints; None keeps its messages for `last_words`.
        seconds: to wait until it answers at /health.
    """

    def __init__(self, command, environment=None, *, log=None, seconds=90.0):
        self.port = free_port(4)  # a service of several devices takes those that follow
        self.url = f"http://127.0.0.1:{self.port}"
        self.log, self.seconds = log, seconds
        self._command = [str(word).replace("{port}", str(self.port)) for word in command]
        self._environment = {**os.environ, **(environment or {})}
        self._process = None

    @property
    def pid(self):
        """Of the process that was started, the parent of all others."""
        return self._process.pid

    def start(self):
        """Starts it and does not wait."""
        options = {"env": self._environment, "text": True, "start_new_session": True}
        if self.log is None:
            self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, **options)
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT, **options)

    def wait(self):
        """Waits until it answers; raises with what it said if it ends before, or takes too long."""
        until = time.monotonic() + self.seconds
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return
            time.sleep(0.1)
        self._end_group()
        said = self.last_words() if self.log is None else self.log.read_text(errors="replace")
        raise RuntimeError(f"{self._command[0]} did not come up:\n{said[-3000:]}")

    def stop(self, seconds=60.0):
        """Ends it by SIGTERM; gives its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        finally:
            self.kill()

    def last_words(self, seconds=60.0):
        """Its messages, once it has ended by itself."""
        return self._process.communicate(timeout=seconds)[1]

    def kill(self):
        """Ends all its processes at once."""
        if self._process is not None:
            self._end_group()
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None

    def _end_group(self):
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def children(self):
        """Process numbers of those that answer, which are those that were spawned; also where the parent is gone."""
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [number for number in numbers if self._is_spawned(number)]

    def _is_spawned(self, number):
        try:
            if os.getpgid(number) != self.pid:
                return False
            return b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes()  # a zombie has no command line
        except OSError:  # it has just ended
            return False

    def __enter__(self):
        self.start()
        try:
            self.wait()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_):
        self.kill()


def loopback_service(*options, environment=None):
    """`capreward serve` of this clone with some options."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **(environment or {})}
    return ServerProcess([sys.executable, "-m", "reward.cli.main", "serve", *options, "--port", "{port}"], settings)
