"""Differentiable functions of the program: torch.autograd.function.

>>> import lockstep as torch
>>> class Square(torch.autograd.Function):
...     @staticmethod
...     def forward(ctx, x):
...         ctx.save_for_backward(x)
...         return x * x
...     @staticmethod
...     def backward(ctx, grad):
...         (x,) = ctx.saved_tensors
...         return 2 * x * grad
>>> x = torch.tensor(3.0, requires_grad=True)
>>> Square.apply(x).backward()
>>> x.grad
tensor(6.)
"""

from .. import _core
from .._core import Tensor


class FunctionCtx:
    """What forward() saves for backward(): tensors with save_for_backward(), everything else as attributes."""

    def __init__(self, inputs):
        self.needs_input_grad = tuple(isinstance(x, Tensor) and x.requires_grad for x in inputs)
        self.materialize_grads = True
        self._to_save = self._dirty = self._non_differentiable = ()
        self._saved = None

    def save_for_backward(self, *tensors):
        """Save tensors, or None, for backward(), which raises an error if they are changed in place before it runs."""
        for i, x in enumerate(tensors):
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(f"save_for_backward: argument {i} is of type {type(x).__name__}, expected a tensor or "
                                "None: keep other values as attributes of ctx")
        self._to_save = tensors

    @property
    def saved_tensors(self):
        """The tensors that save_for_backward() kept."""
        return () if self._saved is None else self._saved.get()

    def mark_dirty(self, *tensors):
        """Name the inputs that forward() has changed in place and returns."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors):
        """Name the results that have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value):
        """Choose whether backward() gets zeros (the default) or None for results that the loss does not depend on."""
        self.materialize_grads = value


class Function:
    """The base of your own functions, which are called by apply().

    forward(ctx, *args) computes a tensor or a tuple, without recording gradients; or forward(*args) does, and
    setup_context(ctx, inputs, output) keeps what backward() needs. backward(ctx, *grads) returns a gradient, or None,
    for each argument. On several devices both are called once, for the whole batch.
    """

    def __call__(self, *args):
        raise _core.Error(f"{type(self).__name__}: an object of a Function is called, expected "
                          f"{type(self).__name__}.apply(...) of static methods")

    @staticmethod
    def forward(ctx, *args, **kwargs):
        """Compute the results."""
        raise NotImplementedError("an autograd.Function without forward()")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Save what backward() needs, if forward() takes no ctx."""
        raise NotImplementedError("an autograd.Function without setup_context()")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """Return the gradients of the arguments of forward()."""
        raise NotImplementedError("an autograd.Function without backward(), which a backward pass needs")

    vjp = backward

    @classmethod
    def apply(cls, *args):
        """Call forward(), and record backward()."""
        ctx = FunctionCtx(args)
        of_tensors = [isinstance(x, Tensor) for x in args]
        inputs = [x for x in args if isinstance(x, Tensor)]
        results, is_tuple = (), False

        def forward():
            nonlocal results, is_tuple
            if cls.setup_context is Function.setup_context:
                results = cls.forward(ctx, *args)
            else:
                results = cls.forward(*args)
                cls.setup_context(ctx, args, results)
            is_tuple = isinstance(results, tuple)
            results = results if is_tuple else (results,)
            if not is_tuple and not isinstance(results[0], Tensor):
                raise TypeError(f"{cls.__name__}: forward() returned {type(results[0]).__name__}, expected a tensor or "
                                "a tuple with tensors")
            if any(not _among(x, inputs) for x in ctx._dirty):
                raise _core.Error(f"{cls.__name__}: mark_dirty() of a tensor that is no argument of forward()")
            unchanged = [x for x in inputs if not _among(x, ctx._dirty)]
            ctx._saved = _core._autograd.SavedTensors(list(ctx._to_save), unchanged)
            ctx._to_save = ()
            ctx._results = [isinstance(y, Tensor) for y in results]
            return [y for y in results if isinstance(y, Tensor)]

        outputs = iter(_core._autograd.apply(cls.__name__, forward, _Backward(cls, ctx, of_tensors), ctx, inputs))
        returned = []
        for y in results:
            output = next(outputs) if isinstance(y, Tensor) else y
            if _among(y, ctx._non_differentiable):
                output = output.detach()
            if _among(y, ctx._dirty):
                output = _core._autograd.become(cls.__name__, y, output)
            returned.append(output)
        ctx._dirty = ctx._non_differentiable = ()
        return tuple(returned) if is_tuple else returned[0]


def _among(x, tensors):
    return any(x is t for t in tensors)


class _Backward:
    """The backward pass of one call. It keeps only tensors that the function saved."""

    def __init__(self, cls, ctx, of_tensors):
        self._cls, self._ctx, self._of_tensors = cls, ctx, of_tensors

    def __call__(self, gradients):
        cls, ctx = self._cls, self._ctx
        backward = cls.vjp if cls.backward is Function.backward else cls.backward
        gradients = iter(gradients)
        found = backward(ctx, *(next(gradients) if is_tensor else None for is_tensor in ctx._results))
        found = list(found) if isinstance(found, tuple) else [found]
        count = len(self._of_tensors)
        while len(found) > count and found[-1] is None:
            found.pop()
        if len(found) != count:
            raise _core.Error(f"{cls.__name__}: backward() returned {len(found)} gradients, expected {count}, one for "
                              "each argument of forward()")
        for i, (gradient, of_tensor) in enumerate(zip(found, self._of_tensors)):
            if gradient is not None and not isinstance(gradient, Tensor):
                raise TypeError(f"{cls.__name__}: backward() returned {type(gradient).__name__} as gradient {i}, "
                                "expected a tensor or None")
            if gradient is not None and not of_tensor:
                raise _core.Error(f"{cls.__name__}: backward() returned a tensor as gradient {i}, expected None: "
                                  f"argument {i} of forward() is no tensor")
        return [gradient for gradient, of_tensor in zip(found, self._of_tensors) if of_tensor]


def once_differentiable(f):
    """Mark a backward() that cannot be differentiated again, as no backward() here can."""
    return f
