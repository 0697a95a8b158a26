"""The threads that make batches. Neither the end of a loop nor of the program waits for a slow example."""

import queue
import threading
import time
import weakref
from concurrent.futures import Future

_WAIT = 1.0  # seconds to wait for examples that are in progress


class LoopEnded(Exception):
    """Raised in a worker: nobody will take the batch that it makes."""


class Workers:
    """A pool of daemon threads that call functions, like that of concurrent.futures."""

    def __init__(self, count, name, initializer):
        jobs = queue.SimpleQueue()
        self._jobs, self._end = jobs, weakref.finalize(self, _end, jobs, count)
        self._threads = [threading.Thread(target=_work, args=(jobs, [initializer]), name=f"{name}_{i}", daemon=True)
                         for i in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, function, *args):
        """Return a future of function(*args)."""
        future = Future()
        self._jobs.put((future, function, args))
        return future

    def shutdown(self):
        """End the threads, and wait for them for a moment."""
        self._end()
        until = time.monotonic() + _WAIT
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def _end(jobs, count):
    for _ in range(count):
        jobs.put(None)


def _work(jobs, initializers):
    initializers.pop()()  # the thread keeps nothing of the loader, whose end ends it
    while True:
        job = jobs.get()
        if job is None:
            return
        future, function, args = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)
        del job, future, function, args  # until the next job, the thread keeps nothing


class Loop:
    """One loop over the batches of a pool: its workers stop at the next example once it has ended."""

    _current = threading.local()

    def __init__(self):
        self._ended = False

    def end(self):
        """Let the workers stop."""
        self._ended = True

    def __enter__(self):
        self._current.loop = self

    def __exit__(self, *exception):
        self._current.loop = None

    @classmethod
    def while_wanted(cls, items):
        """Yield the items until nobody takes the batch any more."""
        loop = getattr(cls._current, "loop", None)
        for item in items:
            if loop is not None and loop._ended:
                raise LoopEnded
            yield item
