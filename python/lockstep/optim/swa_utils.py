"""Averages of weights."""

import copy
import math

from .._core import BatchNorm, Module, tensor
from ..grad_mode import no_grad
from .lr_scheduler import LRScheduler, _of_groups


def get_ema_avg_fn(decay=0.999):
    """Return an avg_fn for the exponential moving average."""
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")
    return lambda average, new, count: decay * average + (1 - decay) * new


def get_swa_avg_fn():
    """Return an avg_fn for the mean of all models."""
    return lambda average, new, count: average + (new - average) / (count + 1)


class AveragedModel(Module):
    """A copy of a model whose parameters are averages: the mean of all, or by avg_fn(average, new, count).

    Its buffers, such as those of batch norms, are the model's of the last update_parameters(), as in PyTorch 2; with
    use_buffers they are averages, too.
    """

    def __init__(self, model, device=None, avg_fn=None, use_buffers=False):
        super().__init__()
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", tensor(0))
        self.avg_fn, self.use_buffers = avg_fn or get_swa_avg_fn(), use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def update_parameters(self, model):
        """Take the model's parameters into the averages."""
        averaged = _pairs("parameter", self.module.named_parameters(), model.named_parameters())
        copied = _pairs("buffer", self.module.named_buffers(), model.named_buffers())
        if self.use_buffers:
            averaged, copied = averaged + copied, []
        count = self.n_averaged.item()
        with no_grad():
            # Computes all new values before it stores the first one. avg_fn gets a tensor, as in PyTorch.
            values = [(a, b if count == 0 else self.avg_fn(a, b, tensor(count))) for a, b in averaged]
            for old, new in values + copied:
                old.copy_(new)
            self.n_averaged.fill_(count + 1)


def _pairs(what, own, others):
    own, others = list(own), list(others)
    shapes = [[tuple(t.shape) for _, t in named] for named in (own, others)]
    if shapes[0] != shapes[1]:
        name = next((n for (n, _), a, b in zip(own, *shapes) if a != b), "")
        raise ValueError(f"AveragedModel: the model has other {what}s than the copy that was made of it" +
                         (f", first {name}" if name else ""))
    return [(a.data, b.data) for (_, a), (_, b) in zip(own, others)]


def update_bn(loader, model, device=None):
    """Recompute the running statistics of all batch norms, as means over the batches of one pass.

    A batch is a tensor, or a list or tuple whose first element is the model's input.
    """
    norms = [m for m in model.modules() if isinstance(m, BatchNorm)]
    if not norms:
        return
    momenta, was_training = [norm.momentum for norm in norms], model.training
    model.train()
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Moves the rates to swa_lr in anneal_epochs steps, and keeps them there."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs, self._cosine = anneal_epochs, anneal_strategy == "cos"
        rates = _of_groups("swa_lr", swa_lr, optimizer)

        def prepare():
            for group, lr in zip(optimizer.param_groups, rates):
                group["swa_lr"] = lr

        super().__init__(optimizer, last_epoch, prepare=prepare)

    def _share(self, step):
        t = max(0, min(1, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._cosine else t

    def get_lr(self):
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, last = group["lr"], group["swa_lr"]
            first = last if before == 1 else (lr - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates
