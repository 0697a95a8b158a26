"""record() and pause(): whether blocks train, and what they compute is recorded."""

import contextlib

_recording = False


def is_recording():
    """Return whether the program is inside record()."""
    return _recording


is_training = is_recording


@contextlib.contextmanager
def _set(on):
    global _recording
    before, _recording = _recording, on
    try:
        yield
    finally:
        _recording = before


def record(train_mode=True):
    """Inside `with record()`, blocks train."""
    if not train_mode:
        raise ValueError("autograd.record: train_mode=False, expected True")
    return _set(True)


def pause(train_mode=False):
    """Inside `with pause()`, blocks predict."""
    if train_mode:
        raise ValueError("autograd.pause: train_mode=True, expected False")
    return _set(False)
