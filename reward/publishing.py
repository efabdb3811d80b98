"""Publishing checkpoints on the Hub, and finding out beforehand whether that will be possible."""

from __future__ import annotations

import os
from pathlib import Path

from reward.checkpoints import CARD_FILE, CONFIG_FILE, HUB_FILES, NOT_HUB_FILES, WEIGHTS_FILE
from reward.errors import CheckpointError, first_line

HUB_ID = "<this folder or its Hub id>"  # in a card, until the checkpoint is pushed


def check_push(repo_id: str, *, private: bool = False, create: bool = True) -> None:
    """Makes sure that a checkpoint can be pushed, before hours are spent on it.

    Args:
        repo_id: `"ORG/NAME"`, a user or an organisation and the name of a model repository.
        private: whether the repository must not be public.
        create: whether it is made now if it does not exist, which is the only sure proof that it may be made. Whether a
            token for single repositories may write to one that exists shows in the end.

    Raises:
        CheckpointError: not a name of that form, no token, one that may not write, the Hub cannot be reached, or the
            repository is public and should be private.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.utils import validate_repo_id

    login = "log in with `hf auth login`, or set HF_TOKEN, with a token that may write"
    if repo_id.count("/") == 0:
        raise CheckpointError(
            f"cannot push to {repo_id!r}: write ORG/NAME, with your name or an organisation's before /"
        )
    api = HfApi()
    try:
        validate_repo_id(repo_id)
        token = (api.whoami().get("auth") or {}).get("accessToken") or {}
        if token.get("role") == "read":
            raise CheckpointError(
                f"cannot push to {repo_id}: the token {token.get('displayName')!r} may only read; {login}"
            )
        if create:
            api.create_repo(repo_id, private=private or None, exist_ok=True)  # None is as the organisation has it
        is_public = private and api.repo_exists(repo_id) and not api.model_info(repo_id).private
    except (HTTPError, OSError, ValueError) as error:  # ValueError: the name, or no token
        if isinstance(error, CheckpointError):
            raise
        reason = f"{first_line(error)} Check the name, the network, HF_ENDPOINT and HF_HUB_OFFLINE, or {login}"
        raise CheckpointError(f"cannot push to {repo_id}: {reason}") from error
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

    Raises:
        CheckpointError: the folder is incomplete, or the Hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    absent = [name for name in (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE) if not (Path(folder) / name).is_file()]
    if absent:
        raise CheckpointError(f"{str(folder)!r} is not a complete checkpoint: it has no {', '.join(absent)}")
    api = HfApi()
    try:
        repo = api.create_repo(repo_id, private=private or None, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        card = Path(folder) / CARD_FILE
        if HUB_ID in (text := card.read_text(encoding="utf-8")):
            card.write_text(text.replace(HUB_ID, repo), encoding="utf-8")
        commit = api.upload_folder(
            folder_path=Path(folder),
            repo_id=repo,
            revision=revision,
            commit_message=commit_message,
            allow_patterns=list(HUB_FILES),
            ignore_patterns=list(NOT_HUB_FILES),
        )
    except (HTTPError, OSError, ValueError, RuntimeError) as error:  # the last two for a card or a transfer
        raise CheckpointError(f"{str(folder)!r} cannot be uploaded to {repo_id}: {first_line(error)}") from error
    return str(commit.commit_url)
