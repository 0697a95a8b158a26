"""Averages of weights."""

import copy

from .._core import Module, tensor
from ..grad_mode import no_grad


class AveragedModel(Module):
    """A copy of a model whose parameters are averages: the mean of all, or by avg_fn(average, new, count)."""

    def __init__(self, model, device=None, avg_fn=None, use_buffers=False):
        super().__init__()
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", tensor(0))
        self._avg_fn, self._use_buffers = avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def update_parameters(self, model):
        """Take the model's parameters into the averages."""
        pairs = list(zip(self.module.parameters(), model.parameters()))
        if self._use_buffers:
            pairs += zip(self.module.buffers(), model.buffers())
        count = self.n_averaged.item()
        with no_grad():
            for average, new in pairs:
                a, b = average.data, new.data
                if count == 0:
                    a.copy_(b)
                elif self._avg_fn is None:
                    a.copy_(a + (b - a) / (count + 1))
                else:
                    a.copy_(self._avg_fn(a, b, count))
            self.n_averaged.fill_(count + 1)
