"""Mixed precision: products in bfloat16 or float16, with weights in float32.

>>> with torch.autocast("cpu", dtype=torch.bfloat16):
...     loss = F.cross_entropy(model(x), y)
>>> loss.backward()
>>> optimizer.step()

float16 needs a scale for the loss:

>>> scaler = torch.amp.GradScaler()
>>> scaler.scale(loss).backward()
>>> scaler.step(optimizer)
>>> scaler.update()
"""

from . import _core
from ._core import Tensor
from .grad_mode import Mode

_DEFAULTS = {"cuda": _core.float16, "cpu": _core.bfloat16}


class autocast(Mode):
    """A scope, or a decorated function, whose matrix products, convolutions, and recurrent layers cast float32 inputs
    to `dtype`; by default float16 for "cuda", bfloat16 for "cpu". It applies to all devices, so that they have equal
    bits. All other operations keep the types of their inputs, and losses are computed in float32."""

    _current, _set = staticmethod(_core._autocast_dtype), staticmethod(_core._set_autocast_dtype)

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if device_type not in _DEFAULTS:
            raise RuntimeError(f"autocast: device type '{device_type}', expected 'cuda' or 'cpu'")
        if dtype is not None and dtype not in (_core.bfloat16, _core.float16):
            raise _core.Error(f"autocast: type {dtype}, expected torch.bfloat16 or torch.float16")
        super().__init__((dtype or _DEFAULTS[device_type]) if enabled else None)


def is_autocast_enabled(device_type=None):
    """Return whether this thread is in an autocast."""
    return _core._autocast_dtype() is not None


def get_autocast_dtype(device_type=None):
    """Return the type of the autocast that this thread is in, or None."""
    return _core._autocast_dtype()


class GradScaler:
    """Scales the loss so that float16 gradients neither vanish nor overflow.

    A step whose gradients are not finite is skipped, and the scale is halved; after growth_interval good steps in a row
    it is doubled. The scale is on the devices: only get_scale() and state_dict() wait for them.
    """

    def __init__(self, device="cuda", init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000,
                 enabled=True):
        if not isinstance(device, (str, _core.device)):  # torch.cuda.amp.GradScaler(1024.0)
            device, init_scale = "cuda", device
        if (growth_factor, backoff_factor) != (2.0, 0.5):
            raise _core.Error(f"GradScaler: growth_factor={growth_factor}, backoff_factor={backoff_factor}, expected "
                              "2.0 and 0.5")
        self._enabled = enabled
        self._interval = growth_interval
        self._state = (float(init_scale), 0)  # until there is an engine
        _core.LossScalerEngine.check(*self._state, growth_interval)
        self._engine = None
        self._before = None  # the scale of the gradients, until update()
        self._optimizers = {}  # what has been done since update(): id -> (optimizer, engine, "unscaled" or "stepped")

    def scale(self, outputs):
        """Return the loss, or each loss of a list or tuple, times the scale."""
        if not self._enabled:
            return outputs
        if not isinstance(outputs, Tensor):
            return type(outputs)(self.scale(loss) for loss in outputs)
        if self._engine is None:
            self._engine = _core.LossScalerEngine(outputs, 1.0, self._interval)
            self._engine.set_state(*self._state)
        # Forgets the scale before: another optimizer's part of the same step has used it.
        self._before = None
        return self._engine.scale(outputs)

    def unscale_(self, optimizer):
        """Divide the gradients by the scale, so that they can be read and clipped before step()."""
        if self._enabled:
            self._unscale(optimizer, now=True)

    def _unscale(self, optimizer, now):
        if id(optimizer) in self._optimizers:
            done = self._optimizers[id(optimizer)][2]
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update()."
                               if done == "unscaled" else "unscale_() is being called after step().")
        engine = getattr(optimizer, "engine", None)
        if engine is None:
            raise _core.Error(f"GradScaler: {type(optimizer).__name__} computes its steps in Python, expected SGD, "
                              "Adam, or another optimizer of the library")
        if self._engine is None:
            raise RuntimeError("GradScaler: expected scaler.scale(loss).backward() first")
        if self._before is None:
            self._before = self._engine.current()
        (self._engine.unscale_now if now else self._engine.unscale)(engine)
        self._optimizers[id(optimizer)] = (optimizer, engine, "unscaled")

    def step(self, optimizer, *args, **kwargs):
        """Unscale the gradients, unless unscale_() has, and call optimizer.step(), which does nothing if a gradient is
        not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if id(optimizer) not in self._optimizers:
            self._unscale(optimizer, now=False)
        _, engine, done = self._optimizers[id(optimizer)]
        if done == "stepped":
            raise RuntimeError("step() has already been called since the last update().")
        if optimizer.engine is not engine:
            raise _core.Error("GradScaler: the optimizer has begun anew between unscale_() and step(), expected that "
                              "after step()")
        self._optimizers[id(optimizer)] = (optimizer, engine, "stepped")
        return optimizer.step()

    def update(self, new_scale=None):
        """End the step: from now on, get_scale() returns the scale of the next step, or new_scale."""
        if not self._enabled:
            return
        if new_scale is None and not self._optimizers:
            raise RuntimeError("GradScaler: update() without a step(), expected step(optimizer) first")
        if new_scale is not None:
            state = float(new_scale), self._good_before()
            _core.LossScalerEngine.check(*state, self._interval)
        for optimizer, engine, done in self._optimizers.values():
            # The program skips this step, so whether its gradients were finite says nothing about the next step.
            if done == "unscaled" and all(p.grad is None for group in optimizer.param_groups for p in group["params"]):
                engine.zero_grad()
        self._optimizers.clear()
        self._before = None
        if new_scale is not None:
            self._set(state)

    def _good_before(self):
        """Return the number of good steps before this one, which does not count if a new scale is set. A bad step has
        reset the number."""
        scale, good = self._now()
        if self._before is None:
            return good
        before = self._before.item()
        return self._interval - 1 if scale > before else max(0, good - 1)

    def _now(self):
        return self._state if self._engine is None else self._engine.state()

    def _set(self, state):
        if self._engine is None:
            self._state = state
        else:
            self._engine.set_state(*state)

    def get_scale(self):
        """Return the scale of this step's loss. Waits for the devices."""
        if not self._enabled:
            return 1.0
        return self._now()[0] if self._before is None else self._before.item()

    def get_growth_factor(self):
        return 2.0

    def get_backoff_factor(self):
        return 0.5

    def get_growth_interval(self):
        return self._interval

    def is_enabled(self):
        return self._enabled

    def state_dict(self):
        """Return the scale and the number of good steps. Call it after update()."""
        if not self._enabled:
            return {}
        scale, good = self._now()
        return {"scale": scale, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": self._interval,
                "_growth_tracker": good}

    def load_state_dict(self, state_dict):
        """Continue from a state of state_dict()."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance "
                               "of GradScaler.")
        loaded = GradScaler("cuda", state_dict["scale"], state_dict["growth_factor"], state_dict["backoff_factor"],
                            state_dict["growth_interval"])
        state = loaded._state[0], int(state_dict["_growth_tracker"])
        _core.LossScalerEngine.check(*state, loaded._interval)
        self._interval, self._engine, self._state = loaded._interval, None, state
        self._before, self._optimizers = None, {}
