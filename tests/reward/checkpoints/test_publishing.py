"""Whether a checkpoint can be pushed is known before it is trained."""

import pytest
from huggingface_hub import constants

from reward.checkpoints.publishing import check_push
from reward.errors import CheckpointError


def test_a_repository_is_made_once_and_kept(hub):
    check_push("tester/mine", private=True)
    check_push("tester/mine", private=True)  # as a resumed training does
    assert list(hub.files("tester/mine")) == [".gitattributes"]
    check_push("tester/open")
    with pytest.raises(CheckpointError, match="tester/open in private: it exists and is public; take another name"):
        check_push("tester/open", private=True)


@pytest.mark.parametrize(
    ("name", "token", "offline", "message"),
    [
        ("mine", "right", False, "write ORG/NAME, with your name or an organisation's first"),
        ("tester/mine/photos", "right", False, "Repo id must be in the form"),
        ("closed/new", "right", False, "You don't have the rights to create a model under this namespace"),
        ("tester/mine", "wrong", False, "log in with `hf auth login`"),
        ("tester/mine", "right", True, "the network, HF_ENDPOINT and HF_HUB_OFFLINE"),
    ],
)
def test_what_is_in_the_way_is_told(name, token, offline, message, hub, monkeypatch):
    hub.token, hub.closed = "right", {"closed"}
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    with pytest.raises(CheckpointError, match=f"cannot push to '?{name}'?: .*{message}"):
        check_push(name)
