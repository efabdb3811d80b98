"""What all tests share: no network, a private Hugging Face cache, few threads, a Hub here, long files first."""

import os
import signal
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.toys.loopback_http import free_port
from tests.toys.untrained_checkpoints import *  # noqa: F403  # fixtures

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
# Runs wait for the disk before they rename a file. No test cuts the power, and a busy disk takes long.
os.fsync = lambda file: None
# PyTorch reads both when it is imported. Threads that spin while they wait are slow beside other busy processes.
os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items):
    # Two processes share the files in this order. Those that run whole programs, at the top, and those with slow tests
    # take longest: begun last, one of them would keep a process busy while the other has nothing left to do.
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.parent != Path(__file__).parent, item.path not in long))


@pytest.fixture(scope="session", autouse=True)
def impatient_hub_client():
    """The Hub's client asks again for 11 s where nothing listens; here it waits a hundredth of that."""
    from huggingface_hub.utils import _http

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_http, "time", SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(seconds / 100)))
        yield


@pytest.fixture(scope="session")
def shared_folder():
    """The folder `shared` beside the checkout, which holds published data; skips where there is none."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder 'shared' beside the checkout")
    return folder


@pytest.fixture
def hub(monkeypatch, tmp_path_factory):
    """An empty Hub on the loopback interface, to which the real client of this process is pointed."""
    from tests.toys.loopback_hub import loopback_hub

    with loopback_hub() as running:
        running.point_client(monkeypatch, tmp_path_factory.mktemp("hub-cache"))
        yield running
