"""Optimizers with PyTorch's names, arguments, and defaults.

>>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
>>> optimizer.zero_grad()
>>> loss.backward()
>>> optimizer.step()

step() also clears the gradients, so zero_grad() is not needed.
"""

import copy
from collections import defaultdict
from collections.abc import Mapping
from itertools import chain

from .. import _core
from .._core import Parameter, Tensor, tensor
from ..grad_mode import enable_grad
from ..nn.utils import zero_gradients
from . import lr_scheduler, swa_utils  # noqa: F401


class Optimizer:
    """The base of all optimizers: groups of parameters with options, of which `lr` may change between steps.

    A subclass may compute its step() with the tensors of `param_groups`, as in PyTorch.
    """

    # Whether the options come from a loaded state; and what schedules made since have set: the options before and
    # after, which load_state_dict() of a schedule takes back.
    _is_loaded = False
    _set_by_new_schedules = None

    def __init__(self, params, defaults):
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but "
                            "got " + type(params).__name__)
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._engine = None
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group):
        """Add a group of parameters: {"params": ..., "lr": ...}. The dict itself becomes the group, with the defaults
        for what it lacks."""
        self._take(param_group, self._new_group(param_group))

    def _take(self, param_group, checked):
        # Two optimizers with the groups of one, as a wrapper and its base, see each other's changes.
        param_group.update(checked)
        self.param_groups.append(param_group)

    def _new_group(self, param_group):
        """Return a checked copy with all options."""
        if not isinstance(param_group, dict):
            raise TypeError("param group must be a dict")
        if isinstance(param_group["params"], (set, frozenset)):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of "
                            "tensors in sets will change between runs. Please use a list instead.")
        group = dict(param_group)
        params = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        known = {id(p) for p in chain(*(g["params"] for g in self.param_groups))}
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if id(p) in known:
                raise ValueError("some parameters appear in more than one parameter group")
            known.add(id(p))
        group["params"] = params
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        return group

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters, or with set_to_none=False set those that are there to zeros."""
        zero_gradients(chain(*(group["params"] for group in self.param_groups)), set_to_none)

    def step(self, closure=None):
        """Update all parameters from their gradients, and clear the gradients. Returns the closure's loss."""
        raise NotImplementedError

    def state_dict(self):
        """Return the state and the options as a dict for lockstep.save()."""
        groups, number = [], 0
        for group in self.param_groups:
            groups.append({k: v for k, v in group.items() if k != "params"})
            groups[-1]["params"] = list(range(number, number + len(group["params"])))
            number += len(group["params"])
        return {"state": self._state(), "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Continue from a state of state_dict(), or of PyTorch's. An error changes nothing."""
        saved = state_dict["param_groups"]
        if [len(g["params"]) for g in saved] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of "
                             "optimizer's group")
        # Values that schedules have left in a group, such as initial_lr, belong to its rate. A state of an older
        # version lacks some options.
        groups = [{**{k: own[k] for k in self.defaults if k in own},
                   **{k: tuple(v) if isinstance(v, list) else copy.deepcopy(v) for k, v in group.items()},
                   "params": own["params"]} for own, group in zip(self.param_groups, saved)]
        # PyTorch numbers the parameters, mostly from 0.
        order = {str(number): i for i, number in enumerate(chain(*(g["params"] for g in saved)))}
        self._load_state(state_dict["state"], groups, order)
        self.param_groups = groups  # others may share the dicts of before
        self._is_loaded, self._set_by_new_schedules = True, None

    def _state(self):
        numbers = {id(p): i for i, p in enumerate(chain(*(g["params"] for g in self.param_groups)))}
        return {numbers.get(id(p), p): dict(values) for p, values in self.state.items()}

    def _load_state(self, state, groups, order):
        parameters = list(chain(*(g["params"] for g in groups)))
        loaded = {parameters[order[str(number)]] if str(number) in order else number: copy.deepcopy(dict(values))
                  for number, values in state.items()}
        self.state.clear()
        self.state.update(loaded)

    def __repr__(self):
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params")
        return text + ")"


def _of_parameters(group):
    for p in group["params"]:
        if not isinstance(p, Parameter):
            raise TypeError(f"optimizer: a {type(p).__name__}, expected an nn.Parameter: x = nn.Parameter(x) before, "
                            "which is a copy, so that the loss is computed of that one")
    return group


class _NoState(Mapping):
    """Shown as `state` by an optimizer of the library: always empty. clear() resets the optimizer, as in PyTorch."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def __getitem__(self, parameter):
        raise KeyError("the library has the optimizer's states: see state_dict()")

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def clear(self):
        self._optimizer._begin_anew()


class _Fused(Optimizer):
    """An optimizer whose rule is in the library. Its engine has the options, and reads the program's changes of
    param_groups before each use."""

    # Whether the engine's next step clips or unscales the gradients.
    _changes_gradients = False
    # Maps PyTorch's names of states to the library's.
    _STATES = {}

    def __init__(self, params, defaults, refused=()):
        for name, value, expected in refused:
            if value != expected:
                raise _core.Error(f"{type(self).__name__}: {name}={value}, expected {expected}")
        super().__init__(params, defaults)

    @property
    def state(self):
        """Empty, because the library has the states. clear(), or assigning an empty dict, resets the optimizer."""
        return _NoState(self)

    @state.setter
    def state(self, value):
        if value:
            raise _core.Error("optimizer: state = ..., but the library has the states: expected load_state_dict()")
        self._begin_anew()

    def __getstate__(self):
        if self._engine is not None:
            raise _core.Error(f"{type(self).__name__}: a copy or a pickle of an optimizer whose states are on devices, "
                              "expected a new one for the copied parameters, and load_state_dict(state_dict())")
        return self.__dict__

    def _begin_anew(self):
        if self._changes_gradients:
            raise _core.Error(f"{type(self).__name__}: the state is dropped between clip_grad_norm() and step(), which "
                              "would not clip")
        self._engine = None

    def add_param_group(self, param_group):
        group = self._new_group(param_group)
        if self._engine is not None:
            options = self._options(group)
            self._engine.add_group((group["params"], options))
            self._params.append(list(group["params"]))
            self._taken.append(options)
        self._take(param_group, group)

    def _new_group(self, param_group):
        group = _of_parameters(super()._new_group(param_group))
        if not group["params"]:
            raise _core.Error(f"{type(self).__name__}: a group without parameters, expected at least one")
        self._ENGINE.check(self._options(group))
        return group

    def _options(self, group):
        """Return the options of a group as numbers, under the engine's names."""
        for name in ("maximize", "differentiable"):
            if group.get(name):
                raise _core.Error(f"{type(self).__name__}: {name}={group[name]}, expected False")
        options = {}
        for name in self.defaults:
            values = group[name] if name == "betas" else [group[name]]
            for key, value in zip(("beta1", "beta2") if name == "betas" else (name,), values, strict=True):
                options[key] = float(value)
        return options

    def _new_engine(self, groups):
        return self._ENGINE([(g["params"], self._options(g)) for g in groups])

    @property
    def engine(self):
        """The library's optimizer, made at its first use with the options of param_groups."""
        options = [self._options(group) for group in self.param_groups]
        if self._engine is None:
            engine = self._new_engine(self.param_groups)
            self._use(engine, options)
            return engine
        params = [group["params"] for group in self.param_groups]
        if len(params) != len(self._params) or not all(map(_same, params, self._params)):
            raise _core.Error(f"{type(self).__name__}: other parameters in param_groups after the first step, "
                              "expected add_param_group(), a new optimizer, or p.requires_grad_(False)")
        if options != self._taken:
            self._engine.set_options(_changes(self._taken, options))
            self._taken = options
        return self._engine

    def _use(self, engine, options):
        self._engine, self._taken = engine, options
        self._params = [list(group["params"]) for group in self.param_groups]

    def _show_rates(self):
        """Set the rates of param_groups to the engine's."""
        if self._engine is None:
            return
        for group, taken, lr in zip(self.param_groups, self._taken, self._engine.learning_rates()):
            if lr != taken["lr"]:
                group["lr"] = taken["lr"] = lr

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self.engine.step()
        self._changes_gradients = False
        return loss

    def zero_grad(self, set_to_none=True):
        self._changes_gradients = False
        # The engine also drops what a GradScaler or clip_grad_norm() left for the next step.
        drop = (lambda: None) if self._engine is None else self._engine.zero_grad
        zero_gradients(chain(*(group["params"] for group in self.param_groups)), set_to_none, drop)

    def clip_grad_norm(self, max_norm):
        """Limit the norm of all gradients to max_norm in the next step. Returns the norm without waiting for it."""
        norm = self.engine.clip_grad_norm(max_norm)
        self._changes_gradients = True
        return norm

    def _state(self):
        return dict(self.engine.state_dict())

    def _load_state(self, state, groups, order):
        options = [self._options(group) for group in groups]
        if not state:  # of PyTorch before the first step
            for its in options:
                self._ENGINE.check(its)
            return self._begin_anew()
        for p in chain(*(g["params"] for g in groups)):
            p.data  # gives it its name, which the state has
        loaded = self._new_engine(groups)
        if all(isinstance(name, int) or name.isdigit() for name in state):
            state = self._named(state, order, loaded.parameter_names(), options)
        state = list(state.items())
        engine = loaded
        if self._engine is not None:
            loaded.check_state_dict(state)
            engine = self.engine
            engine.set_options(_changes(self._taken, options))
        engine.load_state_dict(state)
        # The state has rates, too, but rates that the program has set in param_groups before the load count.
        rates = [dict(its, lr=lr) for its, lr in zip(options, engine.learning_rates())]
        engine.set_options(_changes(rates, options))
        self._use(engine, options)

    def _named(self, state, order, names, options):
        """Return a state of PyTorch, which has indices of parameters, with the library's names."""
        groups = list(chain(*([its] * len(g["params"]) for g, its in zip(self.param_groups, options))))
        named, steps = {}, 0
        for number, values in state.items():
            i = order.get(str(number))
            if i is None:
                raise KeyError(f"{type(self).__name__}: the state of parameter {number}, which is in no group")
            values = {name: value for name, value in values.items() if value is not None}
            step = int(values.pop("step", 1 if values else 0))  # SGD counts none
            for name, value in values.items():
                if name not in self._STATES:
                    raise _core.Error(f"{type(self).__name__}: the state of parameter {number} has {name}, expected "
                                      f"{', '.join(self._STATES)}: of PyTorch's {type(self).__name__}")
                if not isinstance(value, Tensor):
                    raise TypeError(f"{type(self).__name__}: {name} of parameter {number} is {type(value)}, expected "
                                    "a tensor of Lockstep, as load() gives them")
                named[f"{self._STATES[name]}.{names[i]}"] = value
            if values and self._counts(groups[i]):
                named[f"step.{names[i]}"] = tensor([step])
            steps = max(steps, step)
        named["steps"] = tensor([steps])
        return named

    def _counts(self, options):
        """Return whether the rule counts the steps of each parameter."""
        return True


def _same(params, others):
    return len(params) == len(others) and all(p is q for p, q in zip(params, others))


def _changes(before, after):
    """Return the options of each group that differ."""
    return [{name: value for name, value in b.items() if value != a[name]} for a, b in zip(before, after)]


def _positive(**values):
    for name, value in values.items():
        if not 0.0 <= value:
            raise ValueError(f"Invalid {name} value: {value}")


class SGD(_Fused):
    """Stochastic gradient descent, with momentum."""

    _ENGINE = _core.SgdEngine
    _STATES = {"momentum_buffer": "momentum"}

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False):
        _positive(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov),
                         [("maximize", maximize, False), ("differentiable", differentiable, False)])

    def _counts(self, options):
        return options["momentum"] != 0 and options["dampening"] != 0


class Adam(_Fused):
    """Adam (Kingma and Ba 2015)."""

    _ENGINE = _core.AdamEngine
    _STATES = {name: name for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")}

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False, fused=None):
        _positive(lr=lr, eps=eps, weight_decay=weight_decay)
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        super().__init__(params, dict(lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay, amsgrad=amsgrad),
                         [("maximize", maximize, False), ("differentiable", differentiable, False)])


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    _ENGINE = _core.AdamWEngine

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, **more):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **more)


class RMSprop(_Fused):
    """Divides gradients by a moving average of their size."""

    _ENGINE = _core.RMSpropEngine
    _STATES = {name: name for name in ("square_avg", "grad_avg", "momentum_buffer")}

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, foreach=None,
                 maximize=False, differentiable=False):
        _positive(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered,
                                      weight_decay=weight_decay),
                         [("maximize", maximize, False), ("differentiable", differentiable, False)])

    def _counts(self, options):
        return False


class Adagrad(_Fused):
    """Divides gradients by the root of the sum of their squares."""

    _ENGINE = _core.AdagradEngine
    _STATES = {"sum": "sum"}

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10,
                 foreach=None, *, maximize=False, differentiable=False):
        _positive(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, epsilon=eps)
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay),
                         [("initial_accumulator_value", initial_accumulator_value, 0), ("maximize", maximize, False),
                          ("differentiable", differentiable, False)])


class Adadelta(_Fused):
    """Adadelta (Zeiler 2012)."""

    _ENGINE = _core.AdadeltaEngine
    _STATES = {name: name for name in ("square_avg", "acc_delta")}

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, maximize=False,
                 differentiable=False):
        _positive(lr=lr, rho=rho, epsilon=eps, weight_decay=weight_decay)
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay),
                         [("maximize", maximize, False), ("differentiable", differentiable, False)])

    def _counts(self, options):
        return False


class LBFGS(Optimizer):
    """L-BFGS, for small problems whose loss is a smooth function of the whole data."""

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9,
                 history_size=100, line_search_fn=None):
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad,
                                      tolerance_change=tolerance_change, history_size=history_size,
                                      line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._made_with = dict(self.param_groups[0])
        options = {k: v for k, v in self.param_groups[0].items() if k != "params"}
        self._lbfgs = _core.LBFGSEngine(self.param_groups[0]["params"], **options)

    def add_param_group(self, param_group):
        if self.param_groups:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        super().add_param_group(param_group)

    def _new_group(self, param_group):
        return _of_parameters(super()._new_group(param_group))

    def state_dict(self):
        raise _core.Error("LBFGS: state_dict(), but its history cannot be saved: expected a new optimizer")

    def load_state_dict(self, state_dict):
        raise _core.Error("LBFGS: load_state_dict(), but its history cannot be loaded: expected a new optimizer")

    def step(self, closure):
        for name, value in self._made_with.items():
            if self.param_groups[0][name] is not value and self.param_groups[0][name] != value:
                raise _core.Error(f"LBFGS: its {name} changed, expected a new optimizer")

        def with_gradients():
            with enable_grad():
                return closure()

        return self._lbfgs.step(with_gradients)
