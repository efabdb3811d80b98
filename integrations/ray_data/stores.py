"""What an error of a disk or of an object store means for a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reward.errors import CapRewardError


def explained(error: BaseException) -> str:
    """The error in one line.

    Example:
        >>> explained(ConnectionRefusedError("no route"))
        'ConnectionRefusedError: no route'
    """
    return (
        str(error)
        if isinstance(error, CapRewardError)
        else f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
    )


@contextmanager
def explaining(what: str, kind: type[CapRewardError]) -> Iterator[None]:
    """Turns errors of file systems into `kind`, whose message is `what` and the error.

    Each file system of fsspec raises errors of its own library.
    """
    try:
        yield
    except CapRewardError:
        raise
    except Exception as error:
        raise kind(f"{what}: {explained(error)}") from error
