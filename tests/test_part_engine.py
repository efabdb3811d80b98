"""The contract of all that is done in parts: whatever stops it, nothing that was done is lost, doubled or mixed up."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.toys.part_tasks import TASKS, Task

pytestmark = pytest.mark.slow

every_task = pytest.mark.parametrize("name", TASKS)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """{task: the rows of a run that nothing stopped}."""
    found = {}
    for name in TASKS:
        task = made(name, tmp_path_factory.mktemp(name))
        process = task.start()
        assert (task.finish(process), process.exitcode) == ("", 0)
        found[name] = task.rows()
    return found


def made(name: str, folder: Path) -> Task:
    task = TASKS[name](folder)
    task.make()
    return task


def goes_on(task: Task, expected: list[dict[str, Any]]) -> str:
    process = task.start()
    message = task.finish(process)
    assert process.exitcode == 0, message
    assert task.rows() == expected
    return message


@every_task
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_goes_on_and_does_nothing_twice(
    name: str, number: signal.Signals, tmp_path: Path, expected: dict[str, Any]
) -> None:
    task = made(name, tmp_path)
    process = task.start(seconds=0.02)
    task.wait_for(process, 2)
    os.kill(process.pid, number)
    message = task.finish(process)
    assert not (tmp_path / task.output).is_file()
    if number == signal.SIGINT:
        assert (process.exitcode, "Traceback" in message) == (130, False), message
        assert "run the same again to go on" in message
    goes_on(task, expected[name])
    done = Counter(task.log())
    assert max(done.values()) <= 2
    assert sum(count - 1 for count in done.values()) <= 2 * task.at_once  # what was under way, and the next of it
    before = task.rows()
    assert goes_on(task, before) == ""
    assert Counter(task.log()) == done


@every_task
def test_damage_is_made_again_or_told(name: str, tmp_path: Path, expected: dict[str, Any]) -> None:
    task = made(name, tmp_path)
    process = task.start(seconds=0.02)
    task.wait_for(process, 3)
    process.kill()
    task.finish(process)
    cut, changed, *_ = [*task.saved(), None]
    assert cut is not None
    if changed is not None:
        content = changed.read_bytes()
        middle = len(content) // 2
        if name != "ray":  # Parquet finds a changed byte only where it lies in a header
            changed.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    content = cut.read_bytes()
    cut.write_bytes(content[:-7])
    process = task.start()
    message = task.finish(process)
    if process.exitcode == 0:
        assert task.rows() == expected[name]
    else:
        assert process.exitcode == 1
        assert str(cut) in message, message
        assert "Traceback" not in message
        cut.write_bytes(content)
        goes_on(task, expected[name])


@every_task
def test_a_full_disk_is_told_and_loses_nothing(name: str, tmp_path: Path, expected: dict[str, Any]) -> None:
    task = made(name, tmp_path)
    process = task.start(most_bytes=1500)
    message = task.finish(process)
    assert (process.exitcode, "Traceback" in message) == (1, False), message
    assert "cannot write" in message
    saved = task.progress()
    done = len(task.log())
    goes_on(task, expected[name])
    assert len(task.log()) <= 2 * done + len(expected[name]) * 2 - saved


@every_task
def test_a_second_process_is_refused(name: str, tmp_path: Path, expected: dict[str, Any]) -> None:
    if name == "ray":
        pytest.skip("a folder of parts may lie in a store, which knows no locks; a part is whole, whoever writes it")
    task = made(name, tmp_path)
    first = task.start(seconds=0.05)
    task.wait_for(first, 1)
    second = type(task)(tmp_path).start()
    message = task.finish(second)
    assert second.exitcode == 1
    assert "another process is writing" in message
    first.kill()
    task.finish(first)
    goes_on(task, expected[name])
