"""spawn(): starts a function in new processes, one for each rank, as torch.multiprocessing."""

import multiprocessing as _python
import os
import signal
import sys
import time
import traceback
from multiprocessing import *  # noqa: F401,F403
from multiprocessing import connection

from . import _core, distributed
from ._core import internal as _internal

_GRACE_SECONDS = 5.0


class ProcessException(_core.Error):
    """A process that spawn() started has failed. error_index is its rank."""

    def __init__(self, message, error_index, error_pid):
        super().__init__(message)
        self.msg = message
        self.error_index = error_index
        self.error_pid = error_pid


class ProcessRaisedException(ProcessException):
    """The process raised an exception, whose traceback is in the message."""


class ProcessExitedException(ProcessException):
    """The process ended with an exit code, or by a signal."""

    def __init__(self, message, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(message, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name


def _is_consequence(error):
    return isinstance(error, _core.RankLost) or isinstance(error.__cause__, _core.RankLost)


def _run(fn, rank, args, place, errors, parent):
    if not _internal.die_with_parent(parent):
        os._exit(1)
    distributed._place = dict(place, rank=rank)
    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        exits = isinstance(error, SystemExit)
        if exits and error.code in (None, 0):
            return
        if not exits:
            errors.send((_is_consequence(error), traceback.format_exc()))
        elif not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        if distributed.is_initialized():
            distributed._job.abort(f"{type(error).__name__}: {error}")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.code & 0xFF if exits and isinstance(error.code, int) else 1)


class ProcessContext:
    """The processes of spawn(join=False)."""

    def __init__(self, processes, errors, server):
        self.processes = processes
        self._errors = errors
        self._server = server
        self._running = dict(enumerate(processes))
        self._failure = None
        self._is_consequence = False
        self._deadline = None

    def pids(self):
        """Return the process ids."""
        return [p.pid for p in self.processes]

    def join(self, timeout=None):
        """Wait for the processes. Return whether all have ended; raise the failure of the first one that failed.

        After a failure the other processes have five seconds to report theirs before they are killed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._running:
            wait = None
            for end in (until, self._deadline):
                if end is not None:
                    left = max(0.0, end - time.monotonic())
                    wait = left if wait is None else min(wait, left)
            # Waits in slices, because a signal's handler runs between them.
            connection.wait([p.sentinel for p in self._running.values()], 1.0 if wait is None else min(wait, 1.0))
            for rank, process in list(self._running.items()):
                if not process.is_alive():
                    process.join()
                    del self._running[rank]
                    if process.exitcode != 0:
                        self._note(rank, process)
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._end_others()
            if until is not None and time.monotonic() >= until and self._running:
                return False
        self._server = None
        if self._failure is not None:
            raise self._failure
        return True

    # Records the first failure, except that of a rank that only lost another rank.
    def _note(self, rank, process):
        try:
            consequence, text = self._errors[rank].recv()
        except EOFError:  # it has written nothing
            consequence, text = False, None
        ended_by_us = self._deadline is not None and time.monotonic() >= self._deadline
        if self._deadline is None:
            self._deadline = time.monotonic() + _GRACE_SECONDS
        if ended_by_us and text is None or self._failure is not None and (consequence or not self._is_consequence):
            return
        self._is_consequence = consequence
        if text is not None:
            message = f"\n\n-- Process {rank} terminated with the following error:\n{text}"
            self._failure = ProcessRaisedException(message, rank, process.pid)
            return
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            self._failure = ProcessExitedException(f"process {rank} terminated with signal {name}", rank, process.pid,
                                                   code, name)
        else:
            self._failure = ProcessExitedException(f"process {rank} terminated with exit code {code}", rank,
                                                   process.pid, code)

    def _end_others(self):
        for process in self._running.values():
            process.terminate()
        until = time.monotonic() + _GRACE_SECONDS
        for process in self._running.values():
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()


SpawnContext = ProcessContext


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Call fn(rank, *args) in nprocs new processes, which can form a process group: init_process_group("gloo").

    The processes are new interpreters: fn and args are pickled, so fn is a function of a module, and a program calls
    spawn() under `if __name__ == "__main__":`. An exception of a process is raised here, with its traceback. The
    processes never outlive this one. Returns None, or a ProcessContext if join is False.
    """
    if start_method != "spawn":
        raise ValueError(f"spawn: start_method {start_method!r}, expected 'spawn': a fork would lose the engine's "
                         "threads")
    if not isinstance(nprocs, int) or nprocs < 1:
        raise ValueError(f"spawn: nprocs is {nprocs}, expected at least 1: cuda.device_count() counts "
                         "GPUs, len(torch.devices()) all devices, also those of CPUs (LOCKSTEP_DEVICES)")
    context = _python.get_context("spawn")
    secret = _internal.make_secret()
    server = _internal.StoreServer(secret)
    place = {"nprocs": nprocs, "port": server.port, "secret": secret}
    processes, errors = [], []
    sys.stdout.flush()
    try:
        for rank in range(nprocs):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(fn, rank, args, place, send, os.getpid()), daemon=daemon)
            process.start()
            send.close()
            processes.append(process)
            errors.append(receive)
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    spawned = ProcessContext(processes, errors, server)
    if not join:
        return spawned
    try:
        spawned.join()
    except BaseException:
        spawned._end_others()
        raise
    return None


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Do what spawn() does."""
    return spawn(fn, args, nprocs, join, daemon, start_method)


def set_start_method(method, force=False):
    """Accept only "spawn", because a fork would lose the engine's threads."""
    if method != "spawn":
        raise ValueError(f"set_start_method: {method!r}, expected 'spawn': a fork would lose the engine's threads")
    _python.set_start_method(method, force)


__all__ = ["spawn", "start_processes", "set_start_method", "ProcessContext", "SpawnContext", "ProcessException",
           "ProcessRaisedException", "ProcessExitedException", *_python.__all__]
