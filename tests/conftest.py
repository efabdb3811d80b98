"""What all tests share: no network, a private Hugging Face cache, few threads, a Hub in this process, the slow list."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.toys.loopback_http import free_port

if TYPE_CHECKING:
    from tests.toys.loopback_hub import LoopbackHub


# Set before any test module imports a Hugging Face library, because those read the environment once. Online mode with
# an unreachable Hub, rather than offline mode: the same code runs as for a user, and nothing leaves the machine.
_cache = tempfile.TemporaryDirectory(prefix="capreward-tests-")
for _name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN"):
    os.environ.pop(_name, None)
os.environ["HF_HOME"] = _cache.name
os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"  # where nothing listens
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_XET"] = "1"  # the Hub of the tests speaks plain HTTP
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["WANDB_MODE"] = "disabled"
# A shell that starts the tests in the background has them ignore Ctrl-C, and so would the processes they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# PyTorch reads both when it is imported. Threads that spin while they wait are slow beside other busy processes.
os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


# Functions whose tests have the marker `slow`. `make slow-tests` writes the file anew: it runs and measures all tests,
# and leaves out of the list the quickest functions that take FAST_SECONDS together.
SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")
FAST_SECONDS = 30
_seconds: Counter[str] = Counter()  # of each function, over all its parameters
_setups: Counter[str] = Counter()  # of each file, the shared fixtures that the first test of several pays for


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-slow-tests", action="store_true", help="measure the tests and write tests/slow_tests.txt")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = set(SLOW_TESTS.read_text(encoding="utf-8").split())
    for item in items:
        if item.nodeid.partition("[")[0] in slow:
            item.add_marker("slow")
    # Two processes share the files in this order. The files at the top, which run whole programs, take longest: begun
    # last, one of them would keep a process busy while the other has nothing left to do.
    items.sort(key=lambda item: item.path.parent != SLOW_TESTS.parent)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    function = report.nodeid.partition("[")[0]
    if report.when == "setup" and report.duration > 1:
        _setups[function.partition("::")[0]] += report.duration
    else:
        _seconds[function] += report.duration


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    is_worker = hasattr(session.config, "workerinput")  # which reports to the process that started it
    finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not session.config.getoption("--write-slow-tests", False) or not finished or is_worker:
        return
    seconds = {name: own + _setups[name.partition("::")[0]] for name, own in _seconds.items()}
    total, slow = 0.0, []
    for name in sorted(seconds, key=seconds.__getitem__):
        total += seconds[name]
        if total > FAST_SECONDS:
            slow.append(name)
    SLOW_TESTS.write_text("".join(f"{name}\n" for name in sorted(slow)), encoding="utf-8")


@pytest.fixture(scope="session", autouse=True)
def impatient_hub_client() -> Iterator[None]:
    """The Hub's client asks again for 11 s where nothing listens; here it waits a hundredth of that."""
    from huggingface_hub.utils import _http

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_http, "time", SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(seconds / 100)))
        yield


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder `shared` beside the checkout, which holds published data; skips where there is none."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder 'shared' beside the checkout")
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    """An empty Hub on the loopback interface, to which the real client of this process is pointed."""
    from tests.toys.loopback_hub import loopback_hub

    with loopback_hub() as running:
        running.point_client(monkeypatch, tmp_path_factory.mktemp("hub-cache"))
        yield running
