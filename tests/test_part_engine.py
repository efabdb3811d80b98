"""The contract of all that is done in parts: whatever stops it, nothing that was done is lost, doubled or mixed up."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.toys.part_tasks import TASKS

pytestmark = pytest.mark.slow

# What `processes` share out are parts of `score`.
each_engine = pytest.mark.parametrize("name", sorted(set(TASKS) - {"processes"}))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """{task: the rows of a run that nothing stopped}; those of processes are those of one."""
    found = {}
    for name in set(TASKS) - {"processes"}:
        task = made(name, tmp_path_factory.mktemp(name))
        assert task.finish(task.start()) == (0, "")
        found[name] = task.rows()
    return {**found, "processes": found["score"]}


def made(name, folder):
    task = TASKS[name](folder)
    task.make()
    return task


def goes_on(task, expected):
    code, message = task.finish(task.start())
    assert code == 0, message
    assert task.rows() == expected
    return message


@each_engine
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_goes_on_and_does_nothing_twice(name, number, tmp_path, expected):
    task = made(name, tmp_path)
    process = task.start_and_wait(2)
    os.kill(process.pid, number)
    code, message = task.finish(process)
    assert not (tmp_path / task.output).is_file()
    if number == signal.SIGINT:
        assert (code, "Traceback" in message) == (130, False), message
        assert "run the same again to go on" in message
    goes_on(task, expected[name])
    done = Counter(task.log())
    assert max(done.values()) <= 2
    assert sum(count - 1 for count in done.values()) <= 2 * task.at_once  # what was under way, and the next of it
    assert goes_on(task, task.rows()) == ""
    assert Counter(task.log()) == done


@each_engine
def test_damage_is_made_again_or_told(name, tmp_path, expected):
    task = made(name, tmp_path)
    process = task.start_and_wait(3)
    process.kill()
    task.finish(process)
    cut, *others = task.saved()
    content = cut.read_bytes()
    cut.write_bytes(content[:-7])
    for changed in others[:1]:
        data = bytearray(changed.read_bytes())
        task.damage(data)
        changed.write_bytes(data)
    code, message = task.finish(task.start())
    if code == 1:
        assert str(cut) in message, message
        assert "Traceback" not in message
        cut.write_bytes(content)
        goes_on(task, expected[name])
    assert task.rows() == expected[name]


@each_engine
def test_a_full_disk_is_told_and_loses_nothing(name, tmp_path, expected):
    task = made(name, tmp_path)
    code, message = task.finish(task.start(most_bytes=1500))
    assert (code, "Traceback" in message) == (1, False), message
    assert "cannot write" in message
    goes_on(task, expected[name])


@each_engine
def test_a_second_process_is_refused(name, tmp_path, expected):
    task = made(name, tmp_path)
    # It must last until the second has started; what saves many rows at once has fewer pauses left.
    first = task.start_and_wait(1, seconds=min(0.2, 2 / task.at_once))
    code, message = task.finish(type(task)(tmp_path).start())
    assert code == 1
    assert "another process is writing" in message
    first.kill()
    task.finish(first)
    goes_on(task, expected[name])


def children(pid):
    """The directories in /proc of the processes that a process started."""
    started = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path("/proc", each) for each in started]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for the processes")
def test_processes_end_with_their_parent_and_the_death_of_one_stops_the_run(tmp_path, expected):
    task = made("processes", tmp_path)
    process = task.start_and_wait(2)
    workers = children(process.pid)
    process.kill()
    task.finish(process)
    limit = time.monotonic() + 20
    while any(worker.exists() for worker in workers):
        assert time.monotonic() < limit, "a process outlived its parent"
        time.sleep(0.05)
    assert len(workers) >= 2
    (tmp_path / "deaths").write_text("x")  # whoever comes to the row dies, once
    code, message = task.finish(task.start())
    assert code == 1, message
    assert "the process of device 'cpu' died (exit code -9) over rows 37 to 40: perhaps memory was short" in message
    assert "Traceback" not in message
    goes_on(task, expected["processes"])
