"""Runs the Java programs of pycocoevalcap, with equal results under every locale."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from reward.errors import CapRewardError, MissingExtraError

__all__ = ["java_command", "run_java"]

# UTF-8 and English lower case under any locale; garbage collection in one thread.
_FLAGS = ("-Dfile.encoding=UTF-8", "-Duser.language=en", "-Duser.country=US", "-XX:+UseSerialGC")


def java_command(arguments: Sequence[str], *, purpose: str) -> list[str]:
    """Makes a command line that starts Java.

    Args:
        arguments: of `java`.
        purpose: what needs Java, for the message.

    Raises:
        MissingExtraError: there is no `java` on the PATH.
    """
    java = shutil.which("java")
    if java is None:
        raise MissingExtraError(
            f"{purpose} needs Java, and there is no 'java' on the PATH: install a Java runtime (version 8 or later; "
            "'apt-get install default-jre-headless' on Debian and Ubuntu, 'conda install openjdk' with conda)"
        )
    return [java, *_FLAGS, *arguments]


def run_java(arguments: Sequence[str], text: str, *, purpose: str, folder: Path | None = None) -> str:
    """Runs a Java program on a text, and returns what it prints.

    Args:
        arguments: of `java`.
        text: for its standard input.
        purpose: what needs it, for messages.
        folder: working directory; None is the current one.

    Raises:
        MissingExtraError: Java is not installed.
        CapRewardError: the program failed.
    """
    command = java_command(arguments, purpose=purpose)
    done = subprocess.run(command, input=text.encode(), capture_output=True, cwd=folder, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip()[-2000:]
        raise CapRewardError(f"{purpose}: Java ended with code {done.returncode}: {last}")
    return done.stdout.decode()
