"""What an error of a disk or of an object store means for the person who runs a command, and what mends it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from reward.errors import CapRewardError

__all__ = ["explained", "explaining", "is_down", "is_full"]

_DOWN = {"ConnectionError", "HTTPClientError", "ClientConnectorError", "ServerDisconnectedError", "TimeoutError"}
_NO_KEYS = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "ProfileNotFound"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_down(error: BaseException) -> bool:
    """Whether an error says that a store does not answer, rather than that it lacks a file or refuses it.

    Example:
        >>> is_down(ConnectionRefusedError()), is_down(FileNotFoundError())
        (True, False)
    """
    return bool(_names(error) & _DOWN)


def is_full(error: BaseException) -> bool:
    """Whether an error says that no space is left.

    Example:
        >>> is_full(OSError(errno.ENOSPC, "full"))
        True
    """
    return getattr(error, "errno", None) in _FULL


def explained(error: BaseException) -> str:
    """The error in one line, with what to do about it.

    Each file system of fsspec raises errors of its own library, so they are known by the names of their classes.

    Example:
        >>> explained(ConnectionRefusedError("no route"))
        'it does not answer (ConnectionRefusedError: no route); see whether the store is up, and AWS_ENDPOINT_URL'
    """
    text = re.sub(r"\s+", " ", str(error)).strip()
    text = f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
    if isinstance(error, CapRewardError):
        return str(error)
    if is_full(error):
        return "no space is left on the device; make room"
    if _names(error) & _NO_KEYS:
        return f"there are no keys for it ({text}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if isinstance(error, PermissionError):
        return f"it is refused ({text}); check the keys or the rights"
    if is_down(error):
        return f"it does not answer ({text}); see whether the store is up, and AWS_ENDPOINT_URL"
    return text


@contextmanager
def explaining(what: str, kind: type[CapRewardError]) -> Iterator[None]:
    """Turns errors of file systems into `kind`, whose message is `what` and the explanation."""
    try:
        yield
    except CapRewardError:
        raise
    except Exception as error:
        raise kind(f"{what}: {explained(error)}") from error


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}
