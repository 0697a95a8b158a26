"""Whether gradients are recorded: no_grad, enable_grad, set_grad_enabled, each a context manager and a decorator."""

import functools
import inspect

from ._core import _set_grad_enabled, is_grad_enabled


class Mode:
    """A scope in which a mode of this thread has a value, also as a decorator: gradients are recorded, or not."""

    _current, _set = staticmethod(is_grad_enabled), staticmethod(_set_grad_enabled)

    def __init__(self, mode):
        self.mode = mode
        self._outer = []

    def __enter__(self):
        self._outer.append(self._current())
        self._set(self.mode)
        return self

    def __exit__(self, *exception):
        self._set(self._outer.pop())

    def _again(self):
        scope = object.__new__(type(self))
        Mode.__init__(scope, self.mode)
        return scope

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            # Each step of the generator is a scope of its own.
            @functools.wraps(function)
            def generate(*args, **kwargs):
                generator = function(*args, **kwargs)
                step, value = generator.send, None
                while True:
                    try:
                        with self._again():
                            item = step(value)
                    except StopIteration as end:
                        return end.value
                    try:
                        step, value = generator.send, (yield item)
                    except GeneratorExit:
                        generator.close()
                        raise
                    except BaseException as error:
                        step, value = generator.throw, error

            return generate

        @functools.wraps(function)
        def call(*args, **kwargs):
            with self._again():
                return function(*args, **kwargs)

        return call


class no_grad(Mode):
    """Records no gradients, in a `with` statement or in the function that it decorates."""

    def __init__(self, function=None):
        super().__init__(False)

    def __new__(cls, function=None):
        scope = super().__new__(cls)
        if function is None:
            return scope
        scope.__init__()
        return scope(function)


class enable_grad(no_grad):
    """Records gradients, also within no_grad()."""

    def __init__(self, function=None):
        Mode.__init__(self, True)


class inference_mode(no_grad):
    """no_grad(); with mode=False, records gradients."""

    def __init__(self, mode=True):
        Mode.__init__(self, not (mode if isinstance(mode, bool) else True))

    def __new__(cls, mode=True):
        return no_grad.__new__(cls, mode if callable(mode) else None)


class set_grad_enabled(Mode):
    """Sets the mode at once, as a function; in a `with` statement, until its end; in the function that it decorates."""

    def __init__(self, mode):
        super().__init__(bool(mode))
        self._before = is_grad_enabled()
        _set_grad_enabled(self.mode)

    def __enter__(self):
        self._outer.append(self._before)
        _set_grad_enabled(self.mode)
        return self

    def _again(self):
        return type(self)(self.mode)

    def __call__(self, function):
        _set_grad_enabled(self._before)  # the mode is that of the function alone
        return super().__call__(function)
