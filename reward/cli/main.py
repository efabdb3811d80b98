"""Entry point of the `capreward` command: errors and Ctrl-C become one line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

# Everything else is imported inside `main`, where Ctrl-C in the middle of an import ends the command in one line, too.


def main() -> None:
    """Runs the command of `sys.argv`; errors of this library are printed in one line, all others as usual."""
    # Beside a busy process, threads that spin for long while they wait for each other make a small model many times as
    # slow. With the machine to themselves, threads that never spin make it a fifth slower. So they spin for a
    # moment, where the library can (GNU's): that gives the fifth, and costs a sixth beside a busy process. PyTorch
    # reads this when it is imported.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a terminal in cp1252 or C cannot show, it shows as \u2192
        sys.stdout.reconfigure(errors="backslashreplace")
    before = signal.getsignal(signal.SIGINT)
    pressed: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        pressed.append(number)  # an import that is interrupted may end in any other exception
        raise KeyboardInterrupt

    try:
        if before is signal.default_int_handler:  # not where Ctrl-C is ignored, as in a shell's background
            signal.signal(signal.SIGINT, interrupt)
        from reward.cli.app import app
        from reward.cli.terminal import warnings_in_one_line

        with warnings_in_one_line():
            app(prog_name="capreward")
    except BaseException as error:  # SystemExit is how typer ends every command
        _end(error, interrupted=bool(pressed))
    finally:
        if not pressed:
            signal.signal(signal.SIGINT, before)


def _end(error: BaseException, *, interrupted: bool) -> NoReturn:
    """Says what stopped a command, in one line, and exits."""
    from reward.cli.terminal import printable
    from reward.errors import CapRewardError

    stop = _interruption(error)
    if stop is not None or (interrupted and not isinstance(error, (CapRewardError, SystemExit))):
        if interrupted:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # pressed again, it ends the process at once
        print(printable(str(stop or "")) or "stopped", file=sys.stderr)
        sys.exit(130)
    if os.environ.get("CAPREWARD_DEBUG"):
        raise error
    if isinstance(error, CapRewardError):
        _fail(str(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _fail(
            f"cannot write{_place(error)}: {error.strerror}. What was saved before stays; make room and run the same "
            "again"
        )
    raise error


def _interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """The Ctrl-C that an exception comes from; typer turns it into exit code 130."""
    if isinstance(error, SystemExit) and error.code != 130:
        return None
    ids: set[int] = set()  # an error may be a cause of its own cause
    while error is not None and not isinstance(error, KeyboardInterrupt):
        ids.add(id(error))
        error = error.__cause__ or error.__context__
        if id(error) in ids:
            return None
    return error


def _place(error: OSError) -> str:
    """The file that a full disk has no room for."""
    if error.filename:
        return f" {os.fsdecode(error.filename)}"
    try:
        sys.stdout.flush()
    except OSError:
        # What is left for stdout would fail once more when Python ends, and with another exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return " the standard output"
    return ""


def _fail(message: str) -> NoReturn:
    from reward.cli.terminal import console

    console(stderr=True).print(f"error: {message}", style="red")
    sys.exit(1)


if __name__ == "__main__":
    main()
