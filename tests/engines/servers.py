"""An engine's server in a process of its own: started, killed and started again on the same loopback port."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress

from tests.toys.loopback_http import free_port


class EngineServer:
    """A server that is up inside `with`.

    Args:
        command: of the server; `{port}` stands for the port.
        log: file that takes what it prints.
        environment: variables of the process besides this one's.
        seconds: to wait until it answers at /health.
    """

    def __init__(self, command, log, environment=None, seconds=280):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._command = [part.replace("{port}", str(self.port)) for part in command]
        self._log, self._environment, self._seconds = log, dict(environment or {}), seconds
        self._process = None

    def start(self):
        """Starts it and waits until it answers.

        Raises:
            RuntimeError: it ended or did not answer in time, with the end of its log.
        """
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HF_HUB_OFFLINE": "1", **self._environment},
                start_new_session=True,
            )
        until = time.monotonic() + self._seconds
        while time.monotonic() < until and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        self.kill()
        raise RuntimeError(f"{self._command[0]} did not come up:\n{self._log.read_text(errors='replace')[-3000:]}")

    def kill(self):
        """Kills it and its workers at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
