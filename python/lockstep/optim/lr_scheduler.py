"""Schedules of the learning rate with PyTorch's names. step() sets the rates of the optimizer's groups.

Each rate is a function of the number of steps, so values may differ from PyTorch's, which multiplies the last rate, in
the last digits. Where PyTorch multiplies it, a rate that a program or another schedule sets between two steps counts.
"""

import math
from bisect import bisect_right
from collections import Counter


class LRScheduler:
    """The base: get_lr() returns the rates of all groups for self.last_epoch."""

    def __init__(self, optimizer, last_epoch=-1, verbose=False):
        self.optimizer, self.last_epoch, self.verbose = optimizer, last_epoch, verbose
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an optimizer")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.step()

    def get_lr(self):
        """Return the rates of all groups."""
        raise NotImplementedError

    def get_last_lr(self):
        """Return the rates that the last step() set."""
        return self._last_lr

    def step(self, epoch=None):
        """Go on by one, or to this epoch, and set the rates."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set(self.get_lr())

    def _set(self, rates):
        for i, (group, lr) in enumerate(zip(self.optimizer.param_groups, rates)):
            group["lr"] = lr
            if self.verbose:
                print(f"Adjusting learning rate of group {i} to {lr:.4e}.")
        self._last_lr = list(rates)

    def state_dict(self):
        """Return what changes, and the options, without the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not k.endswith("lambdas")}

    def load_state_dict(self, state_dict):
        """Continue from a state, and set its rates."""
        self.__dict__.update(state_dict)
        self._set(self._last_lr)


_LRScheduler = LRScheduler


class _Factor(LRScheduler):
    """The first rate of each group, or how far it is above self._floor, times self._factor(number of steps)."""

    _floor = 0.0

    def step(self, epoch=None):
        """Go on by one, or to this epoch, and set the rates, also of groups that were added since."""
        for group in self.optimizer.param_groups[len(self.base_lrs):]:
            # Its rate is the one of now.
            group.setdefault("initial_lr", group["lr"] / (self._factor(max(self.last_epoch, 0)) or 1))
            self.base_lrs.append(group["initial_lr"])
        if epoch is None and self.last_epoch >= 0:
            self._take_rates()
        super().step(epoch)

    def _take_rates(self):
        """Make rates that somebody else has set the ones of now."""
        factor = self._factor(self.last_epoch)
        for i, (group, last) in enumerate(zip(self.optimizer.param_groups, self._last_lr)):
            if group["lr"] != last and factor != 0:
                self.base_lrs[i] = self._floor + (group["lr"] - self._floor) / factor

    def get_lr(self):
        factor = self._factor(self.last_epoch)
        if not hasattr(self, "_last_lr") and self.last_epoch == 0 and factor == 1:  # the optimizer may continue a run
            return [group["lr"] for group in self.optimizer.param_groups]
        return [self._floor + (lr - self._floor) * factor for lr in self.base_lrs]


class LambdaLR(LRScheduler):
    """The first rate times lr_lambda(epoch); one function for all groups, or a list."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1, verbose=False):
        n = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        if len(self.lr_lambdas) != n:
            raise ValueError(f"Expected {n} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch, verbose)

    def get_lr(self):
        return [lr * f(self.last_epoch) for lr, f in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(LambdaLR):
    """Multiplies the rate by lr_lambda(epoch) in each step."""

    def get_lr(self):
        if self.last_epoch == 0:
            return list(self.base_lrs)
        return [g["lr"] * f(self.last_epoch) for g, f in zip(self.optimizer.param_groups, self.lr_lambdas)]


class StepLR(_Factor):
    """Multiplies the rate by gamma every step_size steps."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1, verbose=False):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch, verbose)

    def _factor(self, t):
        return self.gamma ** (t // self.step_size)


class MultiStepLR(_Factor):
    """Multiplies the rate by gamma at each milestone."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1, verbose=False):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch, verbose)

    def _factor(self, t):
        counts = self.milestones.items()  # of a file, with names
        return self.gamma ** sum(count for milestone, count in counts if int(milestone) <= t)


class ConstantLR(_Factor):
    """The rate times factor for total_iters steps, then the rate."""

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1, verbose=False):
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch, verbose)

    def _factor(self, t):
        return self.factor if t < self.total_iters else 1.0


class LinearLR(_Factor):
    """A line from start_factor to end_factor in total_iters steps."""

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1, verbose=False):
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError("factors are expected between 0 and 1")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch, verbose)

    def _factor(self, t):
        return self.start_factor + (self.end_factor - self.start_factor) * min(t, self.total_iters) / self.total_iters


class ExponentialLR(_Factor):
    """Multiplies the rate by gamma in each step."""

    def __init__(self, optimizer, gamma, last_epoch=-1, verbose=False):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch, verbose)

    def _factor(self, t):
        return self.gamma**t


class PolynomialLR(_Factor):
    """(1 - t / total_iters) ** power, and then 0."""

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1, verbose=False):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch, verbose)

    def _factor(self, t):
        return (1 - min(t, self.total_iters) / self.total_iters) ** self.power


class CosineAnnealingLR(_Factor):
    """Half a cosine from the rate to eta_min in T_max steps, and on along the cosine."""

    def __init__(self, optimizer, T_max, eta_min=0, last_epoch=-1, verbose=False):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch, verbose)

    @property
    def _floor(self):
        return self.eta_min

    def _factor(self, t):
        return (1 + math.cos(math.pi * t / self.T_max)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines of T_0 steps, T_0 T_mult, ..."""

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0, last_epoch=-1, verbose=False):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch, verbose)

    def get_lr(self):
        length, t = self.T_0, self.last_epoch
        while t >= length:
            t, length = t - length, length * self.T_mult
        cosine = (1 + math.cos(math.pi * t / length)) / 2
        return [self.eta_min + (lr - self.eta_min) * cosine for lr in self.base_lrs]


class OneCycleLR(LRScheduler):
    """Up to max_lr and down again (Smith and Topin 2018); cycle_momentum: the momentum goes the other way.

    A step of the library's optimizers that follows a change of the momentum waits, and copies the states.
    """

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3,
                 anneal_strategy="cos", cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0,
                 final_div_factor=1e4, three_phase=False, last_epoch=-1, verbose=False):
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._momentum = next((name for name in ("betas", "momentum") if name in optimizer.defaults), None)
        if cycle_momentum and self._momentum is None:
            raise ValueError("optimizer must support momentum with `cycle_momentum` option enabled")
        if not cycle_momentum:
            self._momentum = None
        self._momenta = (max_momentum, base_momentum, max_momentum)
        self.total_steps = total_steps if total_steps is not None else epochs * steps_per_epoch
        peak = pct_start * self.total_steps - 1
        self._phases = [(peak, 0, 1), (self.total_steps - 1, 1, 2)]
        if three_phase:
            self._phases = [(peak, 0, 1), (2 * pct_start * self.total_steps - 2, 1, 0), (self.total_steps - 1, 0, 2)]
        self._cosine = anneal_strategy == "cos"
        peaks = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(optimizer.param_groups)
        self._rates = [(m / div_factor, m, m / div_factor / final_div_factor) for m in peaks]
        if last_epoch == -1:
            for group, rates in zip(optimizer.param_groups, self._rates):
                group["initial_lr"], group["max_lr"], group["min_lr"] = rates
        super().__init__(optimizer, last_epoch, verbose)

    def get_lr(self):
        if self.last_epoch >= self.total_steps + 1:
            raise ValueError(f"Tried to step {self.last_epoch} times. The total number of steps is {self.total_steps}")
        start = 0.0
        for i, (end, a, b) in enumerate(self._phases):
            if self.last_epoch <= end or i == len(self._phases) - 1:
                share = (self.last_epoch - start) / (end - start)
                if self._cosine:
                    share = (1 - math.cos(math.pi * share)) / 2
                m = self._momenta
                self._set_momentum(m[a] + (m[b] - m[a]) * share)
                return [r[a] + (r[b] - r[a]) * share for r in self._rates]
            start = end

    def _set_momentum(self, value):
        for group in self.optimizer.param_groups if self._momentum else ():
            group[self._momentum] = (value, *group["betas"][1:]) if self._momentum == "betas" else value


class SequentialLR:
    """Schedules one after the other; the next one begins at each milestone."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1, verbose=False):
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be one more than the "
                             f"number of milestone points, but got number of schedulers {len(schedulers)} and the "
                             f"number of milestones to be equal to {len(milestones)}")
        self.optimizer, self._schedulers, self._milestones = optimizer, schedulers, milestones
        self.last_epoch = last_epoch + 1
        schedulers[0].step(0)
        self._last_lr = schedulers[0].get_last_lr()

    def step(self):
        """Go on by one."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            self._schedulers[i].step(0)
        else:
            self._schedulers[i].step()
        self._last_lr = self._schedulers[i].get_last_lr()

    def get_last_lr(self):
        """Return the rates that the last step() set."""
        return self._last_lr

    def state_dict(self):
        """Return the states of all schedules."""
        return {"last_epoch": self.last_epoch, "_last_lr": self._last_lr,
                "schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict):
        """Continue from a state."""
        self.last_epoch = state_dict["last_epoch"]
        for schedule, state in zip(self._schedulers, state_dict["schedulers"]):
            schedule.load_state_dict(state)
        self._last_lr = state_dict["_last_lr"]
        for group, lr in zip(self.optimizer.param_groups, self._last_lr):
            group["lr"] = lr


class ReduceLROnPlateau:
    """Lowers the rates where a metric stops getting better."""

    def __init__(self, optimizer, mode="min", factor=0.1, patience=10, threshold=1e-4, threshold_mode="rel", cooldown=0,
                 min_lr=0, eps=1e-8, verbose=False):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"mode {mode} or threshold mode {threshold_mode} is unknown!")
        n = len(optimizer.param_groups)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps, self.verbose = cooldown, eps, verbose
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * n
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def step(self, metrics):
        """Take the next value of the metric."""
        value = float(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for i, (group, least) in enumerate(zip(self.optimizer.param_groups, self.min_lrs)):
                lr = max(group["lr"] * self.factor, least)
                if group["lr"] - lr > self.eps:
                    group["lr"] = lr
                    if self.verbose:
                        print(f"Epoch {self.last_epoch:05d}: reducing learning rate of group {i} to {lr:.4e}.")
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _is_better(self, value):
        if self.threshold_mode == "rel":
            step = self.threshold if self.mode == "max" else -self.threshold
            return value > self.best * (1 + step) if self.mode == "max" else value < self.best * (1 + step)
        return value > self.best + self.threshold if self.mode == "max" else value < self.best - self.threshold

    def get_last_lr(self):
        """Return the rates that the last step() set."""
        return self._last_lr

    def state_dict(self):
        """Return what changes, and the options."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict):
        """Continue from a state."""
        self.__dict__.update(state_dict)
