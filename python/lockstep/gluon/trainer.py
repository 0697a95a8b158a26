"""gluon.Trainer: an optimizer that divides the gradients by the size of the batch."""

from .. import optim as _optim
from .._core import internal as _internal
from .nn import GluonParameter


class Trainer:
    """An optimizer whose step divides the summed gradients by the batch size: "sgd", "adam"."""

    def __init__(self, params, optimizer, optimizer_params=None, kvstore="device"):
        if hasattr(params, "values"):
            params = list(params.values())
        parameters = [p._parameter if isinstance(p, GluonParameter) else p for p in params]
        options = dict(optimizer_params or {})
        # MXNet's defaults, and its names for options.
        usual = {"sgd": {"lr": 0.01}, "adam": {"lr": 0.001}, "adagrad": {"lr": 0.01, "eps": 1e-7},
                 "rmsprop": {"lr": 0.001, "alpha": 0.9}, "adadelta": {"lr": 1.0, "eps": 1e-5}}
        names = {"learning_rate": "lr", "epsilon": "eps"} | ({"rho": "alpha"} if optimizer == "rmsprop" else {})
        options = usual.get(optimizer, {}) | {names.get(name, name): value for name, value in options.items()}
        if "wd" in options:
            options["weight_decay"] = options.pop("wd")
        kinds = {"sgd": _optim.SGD, "adam": _optim.Adam, "adagrad": _optim.Adagrad, "rmsprop": _optim.RMSprop,
                 "adadelta": _optim.Adadelta}
        if optimizer not in kinds:
            raise ValueError(f"Trainer: optimizer {optimizer!r}, expected one of {', '.join(kinds)}")
        self.optimizer = kinds[optimizer](parameters, **options)

    @property
    def learning_rate(self):
        return self.optimizer.param_groups[0]["lr"]

    def set_learning_rate(self, lr):
        """Set the rate of the next steps."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def step(self, batch_size):
        """Divide the gradients, summed over all devices, by batch_size, and update every replica."""
        _internal.scale_gradients(self.optimizer, 1 / batch_size)
        self.optimizer.step()
