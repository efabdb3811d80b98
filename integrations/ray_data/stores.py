"""What an error of a disk or of an object store means for a run."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from reward.errors import CapRewardError

_DOWN = {"ConnectionError", "HTTPClientError", "ClientConnectorError", "ServerDisconnectedError", "TimeoutError"}


def is_down(error: BaseException) -> bool:
    """Whether an error says that a store does not answer, rather than that it lacks a file or refuses it.

    Each file system of fsspec raises errors of its own library, so they are known by the names of their classes.

    Example:
        >>> is_down(ConnectionRefusedError()), is_down(FileNotFoundError())
        (True, False)
    """
    return bool({kind.__name__ for kind in type(error).__mro__} & _DOWN)


def is_full(error: BaseException) -> bool:
    """Whether an error says that no space is left."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explained(error: BaseException) -> str:
    """The error in one line.

    Example:
        >>> explained(ConnectionRefusedError("no route"))
        'it does not answer (ConnectionRefusedError: no route)'
    """
    if isinstance(error, CapRewardError):
        return str(error)
    if is_full(error):
        return "no space is left on the device; make room"
    text = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
    return f"it does not answer ({text})" if is_down(error) else text


@contextmanager
def explaining(what: str, kind: type[CapRewardError]) -> Iterator[None]:
    """Turns errors of file systems into `kind`, whose message is `what` and the explanation."""
    try:
        yield
    except CapRewardError:
        raise
    except Exception as error:
        raise kind(f"{what}: {explained(error)}") from error
