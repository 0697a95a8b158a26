"""Schedules of the learning rate with PyTorch's names. step() sets the rates of the optimizer's groups.

As in PyTorch, most schedules multiply the current rates of the groups, so they build on a rate that the program or
another schedule has set; LambdaLR, CosineAnnealingWarmRestarts, CyclicLR, and OneCycleLR compute rates from scratch. A
constructor, step(), or load_state_dict() that raises changes nothing.
"""

import contextlib
import copy
import math
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from itertools import chain


@contextlib.contextmanager
def _all_or_nothing(optimizer, schedule=None):
    """If the body raises, restore the options of all groups and the schedule's attributes."""
    groups = [(group, dict(group)) for group in optimizer.param_groups]
    attributes = None if schedule is None else dict(schedule.__dict__)
    try:
        yield
    except BaseException:
        for group, before in groups:
            group.clear()
            group.update(before)
        if attributes is not None:
            schedule.__dict__.clear()
            schedule.__dict__.update(attributes)
        raise


def _of_groups(name, value, optimizer):
    """Return a value for each group; a number applies to all groups."""
    n = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * n
    if len(values) != n:
        raise ValueError(f"expected {n} values for {name}, got {len(values)}")
    return values


def _rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


def _options(optimizer):
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def _momentum_option(optimizer, cycle_momentum):
    """Return the option whose first number a cycle changes, or None."""
    if not cycle_momentum:
        return None
    for name in ("betas", "momentum"):
        if name in optimizer.defaults:
            return name
    raise ValueError("optimizer must support momentum with `cycle_momentum` option enabled")


def _momentum(group, option):
    return group["betas"][0] if option == "betas" else group["momentum"]


def _set_momentum(group, option, value):
    group[option] = (value, *group["betas"][1:]) if option == "betas" else value


def _number_of(epoch):
    return f"{epoch:.2f}" if isinstance(epoch, float) else f"{epoch:05d}"


class LRScheduler:
    """The base: get_lr() returns the rates of the groups for self.last_epoch, computed from their current rates.

    A subclass may have _get_closed_form_lr() for step(epoch), which computes the rates from self.base_lrs alone.
    prepare() changes the groups before the first step.
    """

    def __init__(self, optimizer, last_epoch=-1, verbose=False, *, prepare=None):
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer, self.last_epoch, self.verbose = optimizer, last_epoch, verbose
        before = _options(optimizer)
        with _all_or_nothing(optimizer):
            if prepare is not None:
                prepare()
            for i, group in enumerate(optimizer.param_groups):
                if last_epoch == -1:
                    group.setdefault("initial_lr", group["lr"])
                elif "initial_lr" not in group:
                    raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming an "
                                   "optimizer")
            self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
            first, last = getattr(optimizer, "_set_by_new_schedules", None) or (None, None)
            self._initial_step()
            optimizer._set_by_new_schedules = first if last == before else before, _options(optimizer)

    def _initial_step(self):
        self._step_count = 0
        self.step()

    def get_lr(self):
        """Return the rates of the groups."""
        raise NotImplementedError

    def get_last_lr(self):
        """Return the rates that the last step() set."""
        return self._last_lr

    def step(self, epoch=None):
        """Advance by one step, or to this epoch, and set the rates."""
        with _all_or_nothing(self.optimizer, self):
            self._step_count += 1
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                rates = self._get_closed_form_lr() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
            self._set(rates, epoch)

    def _set(self, rates, epoch):
        self.optimizer._set_by_new_schedules = None
        for i, (group, lr) in enumerate(zip(self.optimizer.param_groups, rates)):
            group["lr"] = lr
            self.print_lr(self.verbose, i, lr, epoch)
        self._last_lr = _rates(self.optimizer)

    def print_lr(self, is_verbose, group, lr, epoch=None):
        """Print the new rate of a group, where is_verbose."""
        if is_verbose:
            text = f"djusting learning rate of group {group} to {lr:.4e}."
            print("A" + text if epoch is None else f"Epoch {_number_of(epoch)}: a{text}")

    def state_dict(self):
        """Return a copy of the attributes, without the optimizer and callables."""
        return copy.deepcopy({k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)})

    def load_state_dict(self, state_dict):
        """Continue from a state. If the optimizer has loaded a state, its rates stay, and what constructors of
        schedules have set since is undone. Otherwise the optimizer gets the rates of this state."""
        self._check_state(state_dict)
        with _all_or_nothing(self.optimizer, self):
            self._load(copy.deepcopy(dict(state_dict)))
            self._take_back()

    def _check_state(self, state_dict):
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"{type(self).__name__}: a state of type {type(state_dict).__name__}, expected a dict of "
                            "state_dict()")
        if "last_epoch" not in state_dict:
            raise KeyError(f"{type(self).__name__}: the state has no last_epoch, expected a dict of state_dict()")
        n = len(self.optimizer.param_groups)
        for name in ("_last_lr", "base_lrs"):
            if len(state_dict.get(name, ())) > n:
                raise ValueError(f"{type(self).__name__}: the state has {name} of {len(state_dict[name])} groups, "
                                 f"expected {n}")

    def _load(self, state):
        self.__dict__.update(state)

    def _parts(self):
        return [self]

    def _take_back(self):
        before, after = getattr(self.optimizer, "_set_by_new_schedules", None) or (None, None)
        if after != _options(self.optimizer):
            return
        for i, group in enumerate(self.optimizer.param_groups):
            if getattr(self.optimizer, "_is_loaded", False):
                group.update(before[i])
            elif i < len(getattr(self, "_last_lr", ())):
                group["lr"] = self._last_lr[i]
        self.optimizer._set_by_new_schedules = before, _options(self.optimizer)


_LRScheduler = LRScheduler


class _Multiplied(LRScheduler):
    """Step t multiplies the rates of the groups by _ratio(t); step(t) sets the first rates times _factor(t)."""

    def get_lr(self):
        ratio = self._ratio(self.last_epoch)
        return [lr * ratio for lr in _rates(self.optimizer)]

    def _get_closed_form_lr(self):
        return [lr * self._factor(self.last_epoch) for lr in self.base_lrs]


class _OfFunctions(LRScheduler):
    """Uses lr_lambda(epoch): one function for all groups, or a list. A state has the attributes of callable objects."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1, verbose=False):
        n = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        if len(self.lr_lambdas) != n:
            raise ValueError(f"Expected {n} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch, verbose)

    def state_dict(self):
        """Return a copy of what changes, without the optimizer and functions."""
        state = copy.deepcopy({k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")})
        state["lr_lambdas"] = [copy.deepcopy(getattr(f, "__dict__", None)) if not isinstance(f, types.FunctionType)
                               else None for f in self.lr_lambdas]
        return state

    def _check_state(self, state_dict):
        super()._check_state(state_dict)
        if len(state_dict.get("lr_lambdas", self.lr_lambdas)) != len(self.lr_lambdas):
            raise ValueError(f"{type(self).__name__}: the state has {len(state_dict['lr_lambdas'])} lr_lambdas, "
                             f"expected {len(self.lr_lambdas)}")

    def _load(self, state):
        all_attributes = state.pop("lr_lambdas", ())
        super()._load(state)
        for function, attributes in zip(self.lr_lambdas, all_attributes):
            if attributes:
                function.__dict__.update(attributes)


class LambdaLR(_OfFunctions):
    """The first rate times lr_lambda(epoch); one function for all groups, or a list."""

    def get_lr(self):
        return [lr * f(self.last_epoch) for lr, f in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(_OfFunctions):
    """Multiplies the rate by lr_lambda(epoch) in each step."""

    def get_lr(self):
        if self.last_epoch <= 0:
            return _rates(self.optimizer)
        return [lr * f(self.last_epoch) for lr, f in zip(_rates(self.optimizer), self.lr_lambdas)]


class StepLR(_Multiplied):
    """Multiplies the rate by gamma every step_size steps."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1, verbose=False):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch, verbose)

    def _ratio(self, t):
        return 1 if t == 0 or t % self.step_size != 0 else self.gamma

    def _factor(self, t):
        return self.gamma ** (t // self.step_size)


class MultiStepLR(_Multiplied):
    """Multiplies the rate by gamma at each milestone."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1, verbose=False):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch, verbose)

    def _load(self, state):
        if "milestones" in state:  # in a file, a dict whose keys are names
            state["milestones"] = Counter({int(m): count for m, count in state["milestones"].items()})
        super()._load(state)

    def _ratio(self, t):
        return self.gamma ** self.milestones[t] if t in self.milestones else 1

    def _factor(self, t):
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), t)


class ConstantLR(_Multiplied):
    """The rate times factor for total_iters steps, then the rate itself."""

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1, verbose=False):
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch, verbose)

    def _ratio(self, t):
        return self.factor if t == 0 else 1 / self.factor if t == self.total_iters else 1

    def _factor(self, t):
        return self.factor if t < self.total_iters else 1


class LinearLR(_Multiplied):
    """The rate times a factor that goes linearly from start_factor to end_factor in total_iters steps."""

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1, verbose=False):
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError("factors are expected between 0 and 1")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch, verbose)

    def _ratio(self, t):
        if t == 0:
            return self.start_factor
        rise = self.end_factor - self.start_factor
        return 1 if t > self.total_iters else 1 + rise / (self.total_iters * self.start_factor + (t - 1) * rise)

    def _factor(self, t):
        rise = self.end_factor - self.start_factor
        return self.start_factor + rise * min(t, self.total_iters) / max(self.total_iters, 1)


class ExponentialLR(_Multiplied):
    """Multiplies the rate by gamma in each step."""

    def __init__(self, optimizer, gamma, last_epoch=-1, verbose=False):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch, verbose)

    def _ratio(self, t):
        return 1 if t == 0 else self.gamma

    def _factor(self, t):
        return self.gamma**t


class PolynomialLR(_Multiplied):
    """The rate times (1 - t / total_iters) ** power, and then 0."""

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1, verbose=False):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch, verbose)

    def _ratio(self, t):
        if t == 0 or t > self.total_iters:
            return 1
        return ((1 - t / self.total_iters) / (1 - (t - 1) / self.total_iters)) ** self.power

    def _factor(self, t):
        return (1 - min(t, self.total_iters) / max(self.total_iters, 1)) ** self.power


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the rate to eta_min in T_max steps, and then further along the cosine."""

    def __init__(self, optimizer, T_max, eta_min=0, last_epoch=-1, verbose=False):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch, verbose)

    def get_lr(self):
        t, rates = self.last_epoch, _rates(self.optimizer)
        if t == 0:
            return rates
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        if (t - 1 - self.T_max) % (2 * self.T_max) == 0:  # the step before was at eta_min
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [lr + (base - self.eta_min) * rise for lr, base in zip(rates, self.base_lrs)]
        ratio = (1 + math.cos(math.pi * t / self.T_max)) / (1 + math.cos(math.pi * (t - 1) / self.T_max))
        return [ratio * (lr - self.eta_min) + self.eta_min for lr in rates]

    def _get_closed_form_lr(self):
        cosine = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (lr - self.eta_min) * cosine for lr in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines of T_0 steps, T_0 T_mult, ..."""

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0, last_epoch=-1, verbose=False):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch, verbose)

    def get_lr(self):
        cosine = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (lr - self.eta_min) * cosine for lr in self.base_lrs]

    def step(self, epoch=None):
        """Advance by one step, or to this epoch, which may be a fraction, and set the rates."""
        with _all_or_nothing(self.optimizer, self):
            self._step_count += 1
            if epoch is None and self.last_epoch >= 0:
                epoch = self.last_epoch + 1
                self.T_cur += 1
                if self.T_cur >= self.T_i:
                    self.T_cur -= self.T_i
                    self.T_i *= self.T_mult
            else:
                epoch = 0 if epoch is None else epoch
                if epoch < 0:
                    raise ValueError(f"Expected non-negative epoch, but got {epoch}")
                self.T_cur, self.T_i = epoch, self.T_0
                while self.T_cur >= self.T_i:
                    if self.T_mult == 1:
                        self.T_cur %= self.T_0
                    else:
                        self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
            self.last_epoch = math.floor(epoch)
            self._set(self.get_lr(), epoch)


class CyclicLR(LRScheduler):
    """Up from base_lr to max_lr and down again, in cycles (Smith 2017).

    cycle_momentum: the momentum moves in the opposite direction. mode: "triangular", "triangular2", whose height is
    halved with each cycle, or "exp_range", whose height is multiplied by gamma in each step; or scale_fn, which
    computes the height from the number of the cycle, or of the step with scale_mode="iterations".
    """

    def __init__(self, optimizer, base_lr, max_lr, step_size_up=2000, step_size_down=None, mode="triangular", gamma=1.0,
                 scale_fn=None, scale_mode="cycle", cycle_momentum=True, base_momentum=0.8, max_momentum=0.9,
                 last_epoch=-1, verbose=False):
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        base_lrs = _of_groups("base_lr", base_lr, optimizer)
        self.max_lrs = _of_groups("max_lr", max_lr, optimizer)
        step_size_down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + step_size_down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        option = _momentum_option(optimizer, cycle_momentum)
        self.base_momentums = _of_groups("base_momentum", base_momentum, optimizer)
        self.max_momentums = _of_groups("max_momentum", max_momentum, optimizer)
        if option and last_epoch != -1:
            self.base_momentums = [_momentum(group, option) for group in optimizer.param_groups]

        def prepare():
            for group, lr in zip(optimizer.param_groups, base_lrs):
                group["lr"] = lr

        super().__init__(optimizer, last_epoch, verbose, prepare=prepare if last_epoch == -1 else None)
        self.base_lrs = base_lrs

    def scale_fn(self, x):
        """Return the height of a cycle."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return getattr(self, f"_{self.mode}_scale_fn")(x)

    def _triangular_scale_fn(self, x):
        return 1.0

    def _triangular2_scale_fn(self, x):
        return 0.5 ** (x - 1)

    def _exp_range_scale_fn(self, x):
        return self.gamma**x

    def get_lr(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1 + self.last_epoch / self.total_size - cycle
        share = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        option = _momentum_option(self.optimizer, self.cycle_momentum)
        if option:
            for group, base, most in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                _set_momentum(group, option, most - (most - base) * share * height)
        return [base + (most - base) * share * height for base, most in zip(self.base_lrs, self.max_lrs)]


class OneCycleLR(LRScheduler):
    """Up to max_lr and down again (Smith and Topin 2018); cycle_momentum: the momentum moves the opposite way."""

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3,
                 anneal_strategy="cos", cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0,
                 final_div_factor=1e4, three_phase=False, last_epoch=-1, verbose=False):
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        self.total_steps = total_steps if total_steps is not None else epochs * steps_per_epoch
        if self.total_steps <= 0 or not isinstance(self.total_steps, int):
            raise ValueError(f"Expected positive integer total_steps, but got {self.total_steps}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.cycle_momentum = cycle_momentum
        option = _momentum_option(optimizer, cycle_momentum)
        peak, end = pct_start * self.total_steps - 1, self.total_steps - 1
        # The last step of each phase, and the names of the rates and momenta with which it begins and ends.
        up, down = ("initial", "max", "max", "base"), ("max", "min", "base", "max")
        self._phases = [(peak, *up), (end, *down)]
        if three_phase:
            back, out = ("max", "initial", "base", "max"), ("initial", "min", "max", "max")
            self._phases = [(peak, *up), (2 * peak, *back), (end, *out)]
        self._cosine = anneal_strategy == "cos"
        peaks = _of_groups("max_lr", max_lr, optimizer)
        momenta = list(zip(_of_groups("base_momentum", base_momentum, optimizer),
                           _of_groups("max_momentum", max_momentum, optimizer)))

        def prepare():
            for group, most, (base_momentum, max_momentum) in zip(optimizer.param_groups, peaks, momenta):
                first = most / div_factor
                group.update(initial_lr=first, max_lr=most, min_lr=first / final_div_factor)
                if option:
                    group.update(base_momentum=base_momentum, max_momentum=max_momentum)

        super().__init__(optimizer, last_epoch, verbose, prepare=prepare if last_epoch == -1 else None)

    def get_lr(self):
        if self.last_epoch > self.total_steps:
            raise ValueError(f"Tried to step {self.last_epoch} times. The total number of steps is {self.total_steps}")
        start = 0.0
        for i, (end, *names) in enumerate(self._phases):
            if self.last_epoch <= end or i == len(self._phases) - 1:
                break
            start = end
        share = (self.last_epoch - start) / (end - start)
        from_lr, to_lr, from_momentum, to_momentum = names
        rates = [self.anneal_func(group[from_lr + "_lr"], group[to_lr + "_lr"], share)
                 for group in self.optimizer.param_groups]
        option = _momentum_option(self.optimizer, self.cycle_momentum)
        for group in self.optimizer.param_groups if option else ():
            _set_momentum(group, option, self.anneal_func(group[from_momentum + "_momentum"],
                                                          group[to_momentum + "_momentum"], share))
        return rates

    def anneal_func(self, start, end, pct):
        """Return the number between start and end after the fraction pct of the way."""
        return (self._annealing_cos if self._cosine else self._annealing_linear)(start, end, pct)

    def _annealing_cos(self, start, end, pct):
        return end + (start - end) * (1 + math.cos(math.pi * pct)) / 2

    def _annealing_linear(self, start, end, pct):
        return start + (end - start) * pct


class _Several(LRScheduler):
    """The base of schedules that combine schedules of one optimizer."""

    def __init__(self, optimizer, schedulers):
        name = type(self).__name__
        schedulers = list(schedulers)
        if not schedulers:
            raise ValueError(f"{name} expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        for i, schedule in enumerate(schedulers):
            if isinstance(schedule, ReduceLROnPlateau):
                raise ValueError(f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                                 "kwargs to be specified when calling `step`, but got one at index "
                                 f"{i} in the given schedulers sequence.")
            if schedule.optimizer is not optimizer:
                raise ValueError(f"{name} expects all schedulers to belong to the same optimizer, but got scheduler at "
                                 f"index {i} to be different.")
        self.optimizer, self._schedulers = optimizer, schedulers

    @contextlib.contextmanager
    def _together(self):
        """If the body raises, restore all schedules and the options of all groups."""
        with contextlib.ExitStack() as stack:
            for schedule in self._parts():
                stack.enter_context(_all_or_nothing(self.optimizer, schedule))
            yield

    def _parts(self):
        return [self, *chain(*(s._parts() for s in self._schedulers))]

    def state_dict(self):
        """Return copies of the states of all schedules."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        return {**copy.deepcopy(state), "_schedulers": [s.state_dict() for s in self._schedulers]}

    def _check_state(self, state_dict):
        states = state_dict.get("_schedulers", ()) if isinstance(state_dict, Mapping) else ()
        if len(states) != len(self._schedulers):
            raise ValueError(f"{type(self).__name__}: a state of {len(states)} schedulers, expected "
                             f"{len(self._schedulers)}")
        for schedule, state in zip(self._schedulers, states):
            schedule._check_state(state)

    def load_state_dict(self, state_dict):
        """Continue from a state, as each of its schedules does."""
        self._check_state(state_dict)
        with self._together():
            for schedule, state in zip(self._schedulers, state_dict["_schedulers"]):
                schedule.load_state_dict(state)
            self._load(copy.deepcopy({k: v for k, v in state_dict.items() if k != "_schedulers"}))
            self._take_back()


class SequentialLR(_Several):
    """Schedules one after another; the next one begins at each milestone."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1, verbose=False):
        super().__init__(optimizer, schedulers)
        if len(milestones) != len(self._schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be one more than the "
                             "number of milestone points, but got number of schedulers "
                             f"{len(self._schedulers)} and the number of milestones to be equal to {len(milestones)}")
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        with self._together():
            new = getattr(optimizer, "_set_by_new_schedules", None)  # of the given schedules
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"]
            for schedule in self._parts():
                if not isinstance(schedule, _Several):  # takes back the step of its constructor
                    schedule.last_epoch -= 1
            self._schedulers[0]._initial_step()
            if new:
                optimizer._set_by_new_schedules = new[0], _options(optimizer)
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self):
        """Advance by one step."""
        with self._together():
            self.last_epoch += 1
            i = bisect_right(self._milestones, self.last_epoch)
            if i > 0 and self._milestones[i - 1] == self.last_epoch:
                self._schedulers[i].step(0)
            else:
                self._schedulers[i].step()
            self._last_lr = self._schedulers[i].get_last_lr()


class ChainedScheduler(_Several):
    """Several schedules that all take every step."""

    def __init__(self, schedulers, optimizer=None):
        super().__init__(optimizer, schedulers)
        self._last_lr = _rates(self.optimizer)

    def step(self):
        """Advance all schedules by one step."""
        with self._together():
            for schedule in self._schedulers:
                schedule.step()
            self._last_lr = _rates(self.optimizer)


class ReduceLROnPlateau:
    """Lowers the rates where a metric stops getting better."""

    def __init__(self, optimizer, mode="min", factor=0.1, patience=10, threshold=1e-4, threshold_mode="rel", cooldown=0,
                 min_lr=0, eps=1e-8, verbose=False):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"mode {mode} or threshold mode {threshold_mode} is unknown!")
        self.min_lrs = _of_groups("min_lr", min_lr, optimizer)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps, self.verbose = cooldown, eps, verbose
        self.last_epoch = 0
        self._reset()
        self._last_lr = _rates(optimizer)

    def _reset(self):
        self.best = math.inf if self.mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0

    def step(self, metrics, epoch=None):
        """Take the next value of the metric, and lower the rates if it is time."""
        value = float(metrics)
        added = len(self.optimizer.param_groups) - len(self.min_lrs)
        if added > 0 and self.default_min_lr is None:
            raise RuntimeError(f"ReduceLROnPlateau: min_lr of {len(self.min_lrs)} groups, but {added} more were added")
        self.min_lrs = self.min_lrs + [self.default_min_lr] * added
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(self.last_epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = _rates(self.optimizer)

    def _reduce_lr(self, epoch):
        for i, (group, least) in enumerate(zip(self.optimizer.param_groups, self.min_lrs)):
            lr = max(group["lr"] * self.factor, least)
            if group["lr"] - lr > self.eps:
                group["lr"] = lr
                if self.verbose:
                    print(f"Epoch {_number_of(epoch)}: reducing learning rate of group {i} to {lr:.4e}.")

    @property
    def in_cooldown(self):
        return self.cooldown_counter > 0

    def is_better(self, a, best):
        """Return whether a is better than best by more than the threshold."""
        step = self.threshold if self.mode == "max" else -self.threshold
        limit = best * (1 + step) if self.threshold_mode == "rel" else best + step
        return a > limit if self.mode == "max" else a < limit

    def get_last_lr(self):
        """Return the rates that the last step() set."""
        return self._last_lr

    def state_dict(self):
        """Return a copy of what changes, and of the options."""
        return copy.deepcopy({k: v for k, v in self.__dict__.items() if k != "optimizer"})

    def load_state_dict(self, state_dict):
        """Continue from a state. The optimizer's rates do not change."""
        missing = {"best", "num_bad_epochs"} - set(state_dict)
        if missing:
            raise KeyError(f"ReduceLROnPlateau: the state has no {min(missing)}, expected a dict of state_dict()")
        self.__dict__.update(copy.deepcopy(dict(state_dict)))
