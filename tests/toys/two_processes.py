"""Two processes of this machine that PyTorch and accelerate take for one training."""

import gc
import multiprocessing
import os

import torch

from tests.toys.loopback_http import free_port


def run_in_two(function, *arguments):
    """Calls a function of a module in two processes, and waits for both."""
    # Both are forked of one process that has loaded the libraries, which serves all tests after its first call.
    fork = multiprocessing.get_context("forkserver")
    fork.set_forkserver_preload(["tests.integrations.trl.watched"])
    port = free_port()
    processes = [fork.Process(target=_run, args=(rank, port, function, arguments)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(250)
    assert [process.exitcode for process in processes] == [0, 0]


def _run(rank, port, function, arguments):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", ACCELERATE_USE_CPU="1")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    function(*arguments)
    # A trainer holds the process group. Its threads must have ended when the interpreter ends, or one of them may wait
    # for the interpreter then, and the process aborts.
    gc.collect()
