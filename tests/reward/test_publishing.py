"""Whether a checkpoint can be pushed is known before it is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from reward.errors import CheckpointError
from reward.publishing import check_push
from tests.toys.loopback_hub import LoopbackHub

TOKEN = "a-token-of-the-test"


@pytest.fixture(autouse=True)
def login(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = TOKEN
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def test_a_repository_is_made_once_and_kept(hub: LoopbackHub) -> None:
    check_push("tester/mine", private=True)
    check_push("tester/mine", private=True)  # as a resumed training does
    assert list(hub.files("tester/mine")) == [".gitattributes"]
    check_push("tester/open")
    with pytest.raises(CheckpointError, match="tester/open in private: it exists and is public; take another name"):
        check_push("tester/open", private=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine", "write ORG/NAME, with your name or an organisation's first"),
        ("tester/mine/photos", "Repo id must be in the form"),
        ("tester/my photos", "Repo id must use alphanumeric chars"),
        ("closed/new", "You don't have the rights to create a model under this namespace"),
    ],
)
def test_a_name_that_cannot_be_pushed_to(name: str, message: str, hub: LoopbackHub) -> None:
    hub.closed = {"closed"}
    with pytest.raises(CheckpointError, match=f"cannot push to '?{name}'?: .*{message}"):
        check_push(name)


def test_what_is_wrong_with_the_login(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "another")
    with pytest.raises(CheckpointError, match=r"tester/mine: .* log in with `hf auth login`"):
        check_push("tester/mine")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with pytest.raises(CheckpointError, match=r"tester/mine: .* log in with `hf auth login`"):
        check_push("tester/mine")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match=r"tester/mine: .* the network, HF_ENDPOINT and HF_HUB_OFFLINE"):
        check_push("tester/mine")
