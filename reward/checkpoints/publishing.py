"""Publishing checkpoints on the Hub, and finding out beforehand whether that will be possible."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reward.checkpoints.folders import CARD_FILE, HUB_FILES, NOT_HUB_FILES
from reward.errors import CheckpointError, first_line

HUB_ID = "<this folder or its Hub id>"  # in a card, until the checkpoint is pushed


def check_push(repo_id: str, *, private: bool = False) -> None:
    """Makes the model repository if it is not there, the only sure proof that it may be made, before a training.

    Args:
        repo_id: `"ORG/NAME"`, a user or an organisation and a name.
        private: whether the repository must not be public.
    """
    if "/" not in repo_id:
        raise CheckpointError(f"cannot push to {repo_id!r}: write ORG/NAME, with your name or an organisation's first")
    advice = " Check the name, the network, HF_ENDPOINT and HF_HUB_OFFLINE, or log in with `hf auth login`"
    with _hub(f"cannot push to {repo_id}", advice) as hub:
        hub.create_repo(repo_id, private=private or None, exist_ok=True)  # None is as the organisation has it
        is_public = private and not hub.model_info(repo_id).private
    if is_public:
        raise CheckpointError(f"cannot push to {repo_id} in private: it exists and is public; take another name")


def push_checkpoint(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    commit_message: str = "Upload checkpoint",
) -> str:
    """Uploads a checkpoint folder to a model repository on the Hub, which is created if needed.

    The example in the card of a training then names the repository. Folders in the folder, such as those of the stages
    of a training, stay here.

    Args:
        folder: a complete checkpoint.
        repo_id: `"name/repo"`.
        private: whether a new repository is private.
        revision: branch to commit to, created if needed; None is the main branch.
        commit_message: title of the commit.

    Returns:
        Web address of the commit.
    """
    patterns = {"allow_patterns": list(HUB_FILES), "ignore_patterns": list(NOT_HUB_FILES)}
    with _hub(f"{str(folder)!r} cannot be uploaded to {repo_id}") as hub:
        repo = hub.create_repo(repo_id, private=private or None, exist_ok=True).repo_id
        if revision is not None:
            hub.create_branch(repo, branch=revision, exist_ok=True)
        card = Path(folder) / CARD_FILE
        text = card.read_text(encoding="utf-8")
        if HUB_ID in text:
            card.write_text(text.replace(HUB_ID, repo), encoding="utf-8")
        commit = hub.upload_folder(
            folder_path=folder, repo_id=repo, revision=revision, commit_message=commit_message, **patterns
        )
    return str(commit.commit_url)


@contextmanager
def _hub(problem: str, advice: str = "") -> Iterator[Any]:
    """The Hub's client; what it raises becomes a CheckpointError that says what cannot be done."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    try:
        yield HfApi()
    except (HTTPError, OSError, ValueError, RuntimeError) as error:  # the last two for a name, a card or a transfer
        raise CheckpointError(f"{problem}: {first_line(error)}{advice}") from error
