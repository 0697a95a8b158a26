"""Training loops of the library: Trainer, evaluate, and the learning-rate finder.

>>> trainer = lockstep.Trainer(net, optimizer, train_data, test_data, batch_size=256, epochs=10)
>>> trainer.on_epoch = print
>>> trainer.train()

A Trainer of C++ and `lockstep train` with the same recipe end with the same weights, to the last bit.
"""

import os
import shutil
import subprocess
import typing

from . import _core
from ._core import AuditResult, EpochReport, Metric, StepReport, Tensor, TrainingResult, dtype, float32
from .nn.module import _begin_training
from .utils.data import DataLoader, _Structure


class Trainer:
    """Trains a model where it is: shards over devices and ranks, evaluation after each epoch, checkpoints, resume.

    train and test are data sets: from lockstep.datasets, or with __len__ and __getitem__, whose examples are (input,
    label). Their attributes are read when train() begins; the number of examples must not change. Options have the
    names and defaults of the C++ class (lockstep/train/trainer.h):

    shards, balance: V of the recipe, and the shares of devices: "auto", or a weight for each device.
    record_steps: describe a step once and repeat it, until a callback changes a mode, an option, or an attribute.
    accumulate: the number of micro-batches in a step. drop_last: an epoch leaves out its last batch if it is not full.
    loss(outputs, labels): a mean; cross entropy if missing. forward(batch): for examples of other parts; it returns
    (loss, outputs), or a dict with loss, outputs, targets, and log.
    batch_transform(inputs, labels): such as transforms.MixUp; name it in `recipe`, too.
    schedule: "cosine" or another kind, or a dict: {"kind": "cosine", "warmup": 100}. It replaces the optimizer's rate
    in each step, and scales the rates of groups with their own. Without it, a run uses the rate that the program set
    last, not one that another Trainer's schedule left, and callbacks may set param_groups[i]["lr"]. Other options must
    not change during a run.
    metrics: of lockstep.metrics, or a Metric.
    save_folder, save_every, resume, keep_checkpoints: checkpoints, and going on from the newest one.
    watch: {"metric": "accuracy", "patience": 3, "save_best": True}.
    tensorboard: a folder, or {"folder": ..., "histogram_every": ...}. log_file: a line of JSON for each step.
    receipt: a file, or {"file": ..., "every": 100, "sign_key": ...}; audit() checks it.
    report: a folder for report.html, a page about the run, or {"folder": ..., "title": ..., "data": DataSource,
    "origin": True}; data shows what the model predicts for its validation part, origin the command line and the host.
    metrics_file: a file for Prometheus; each rank has its own.
    recipe: names and values of everything else that decides the bits: model, data, loss.

    on_update(step) is called after each step, and on_epoch(EpochReport) after each epoch: their changes, as of a rate,
    apply to the next step. on_step(StepReport) comes up to two steps later, because nothing waits for the loss.
    """

    def __init__(self, model: typing.Any, optimizer: typing.Any, train: typing.Any, test: typing.Any = None, *,
                 devices: typing.Any = None, shards: int = 0, balance: typing.Any = None, batch_size: int = 256,
                 accumulate: int = 1, record_steps: bool = False, epochs: int = 10, max_steps: int = 0,
                 shuffle: bool = True, drop_last: bool = False, workers: int = 1, seed: int | None = None,
                 dtype: dtype = float32, gradients: dtype = float32, loss_scaling: dict[str, typing.Any] | None = None,
                 loss: typing.Callable[[Tensor, Tensor], Tensor] | None = None, label_smoothing: float = 0,
                 forward: typing.Callable[..., typing.Any] | None = None,
                 loss_weight: typing.Callable[..., float] | None = None,
                 batch_transform: typing.Callable[..., typing.Any] | None = None,
                 metrics: typing.Sequence[Metric] = (), clip_norm: float = 0,
                 schedule: str | dict[str, typing.Any] | None = None,
                 save_folder: str | os.PathLike[str] | None = None, save_every: int = 0, resume: bool = False,
                 keep_checkpoints: int = 2, log_file: str | os.PathLike[str] | None = None,
                 tensorboard: typing.Any = None, receipt: typing.Any = None, watch: dict[str, typing.Any] | None = None,
                 average_decay: float = 0, report: typing.Any = None,
                 metrics_file: str | os.PathLike[str] | None = None,
                 recipe: dict[str, typing.Any] | None = None) -> None:
        options = {**locals(), "metrics": list(metrics)}
        for name in ("self", "model", "optimizer", "train", "test"):
            del options[name]
        _check_unwrapped("Trainer", model)
        if label_smoothing and (loss is not None or forward is not None):
            raise ValueError("Trainer: label_smoothing with a loss of its own, expected the loss to smooth the labels")
        if save_every and save_folder is None:
            raise ValueError(f"Trainer: save_every={save_every} without save_folder")
        self._optimizer, self._engine = optimizer, _engine_of(optimizer, "Trainer")
        self._metrics = options["metrics"]  # makes them visible to the collector: the engine has copies
        self._model = model
        self._described = _description(model) if record_steps else None
        self._trainer = _core._Trainer(model, self._engine, train, test, _in_full(options))
        optimizer._show_rates()  # a schedule's base_lr
        self.on_step: typing.Callable[[StepReport], typing.Any] | None = None
        self.on_epoch: typing.Callable[[EpochReport], typing.Any] | None = None
        self.on_update: typing.Callable[[int], typing.Any] | None = None

    def train(self) -> TrainingResult:
        """Train to the end, or until request_stop(); a second call goes on. Raises if a loss is not finite."""
        self._take_options()
        _begin_training(self._model)
        try:
            return self._trainer.train(*map(self._callback, ("on_step", "on_epoch", "on_update")))
        finally:
            self._optimizer._show_rates()

    # Shows the run's rates in param_groups, even in callbacks, where the program may change them.
    def _take_options(self) -> None:
        if self._optimizer.engine is not self._engine:
            raise _core.Error("Trainer: the optimizer has begun anew since the Trainer was made, expected a new "
                              "Trainer")
        if self._described is not None and (now := _description(self._model)) != self._described:
            self._described = now
            self._trainer.forget_recording()

    # A callback may set others. If none is set, the run calls none.
    def _callback(self, name: str) -> typing.Callable[..., None] | None:
        if self.on_step is self.on_epoch is self.on_update is None:
            return None

        def called(report: typing.Any) -> None:
            function = getattr(self, name)
            if function is None:
                return
            self._optimizer._show_rates()
            function(report)
            self._take_options()

        return called

    def resume(self, folder: str | os.PathLike[str]) -> os.PathLike[str]:
        """Continue from the newest checkpoint in the folder, with the same bits. Returns its path."""
        self._take_options()
        path = self._trainer.resume(folder)
        self._optimizer._show_rates()
        return path

    def resume_or_start(self) -> os.PathLike[str] | None:
        """Continue from the newest checkpoint in save_folder. Returns its path, or None if the run starts."""
        self._take_options()
        path = self._trainer.resume_or_start()
        self._optimizer._show_rates()
        return path

    def audit(self, receipt: str | os.PathLike[str], *, public_key: str | os.PathLike[str] = "",
              run: str | os.PathLike[str] = "", random_steps: int = 3, steps: tuple[int, int] | None = None,
              on_equal: typing.Callable[[str], typing.Any] | None = None) -> AuditResult:
        """Check a run's receipt: train some of its steps again, on any devices. Raises AuditFailure for a difference.

        Make model, optimizer, data, and options as for the run, and do not use them before. With public_key (PEM), the
        receipt must have the signature of this key. run: the folder of the checkpoints, from which steps are reached;
        otherwise from the start. steps: first and last, instead of random ones. on_equal(text) is told what is equal.
        """
        self._take_options()
        _begin_training(self._model)
        try:
            return self._trainer.audit(receipt, public_key, run, random_steps, steps, on_equal)
        finally:
            self._optimizer._show_rates()

    def request_stop(self) -> None:
        """End training after the step in progress. Any thread may call it."""
        self._trainer.request_stop()

    @property
    def recipe(self) -> str:
        """Everything that decides the bits, as JSON."""
        return self._trainer.recipe()

    @property
    def recipe_hash(self) -> str:
        return self._trainer.recipe_hash()


def _description(model: typing.Any) -> list[typing.Any]:
    """Return what decides a model's tasks besides its inputs and weights: which gradients exist, modes, options, hooks
    of modules, and attributes."""
    found: list[typing.Any] = [p.grad is None for p in model.parameters()]
    for module in model.modules():
        found += [id(module), module.training]
        found += [getattr(module, name, None) for name in ("p", "eps", "momentum", "inplace")]
        for name, value in vars(module).items():
            if isinstance(value, dict):
                value = [(key, id(each)) for key, each in value.items()]
            elif not isinstance(value, (bool, int, float, str)):
                value = id(value)
            found.append((name, value))
    return found


def _check_unwrapped(use: str, model: typing.Any) -> None:
    """Reject a wrapper for several devices or ranks, because `use` itself computes on all of them, or on one."""
    from .nn.parallel import DataParallel, DistributedDataParallel

    refused = DataParallel if use in ("evaluate", "export_onnx") else (DataParallel, DistributedDataParallel)
    if isinstance(model, refused):
        raise _core.Error(f"{use}: the model is wrapped by {type(model).__name__}, expected the model itself: "
                          "model.module")


def _engine_of(optimizer: typing.Any, use: str) -> typing.Any:
    """Return the library's optimizer."""
    engine = getattr(optimizer, "engine", None)
    own_step = "step" in vars(optimizer) or not type(optimizer).step.__module__.startswith("lockstep.")
    if engine is not None and own_step:
        raise TypeError(f"{use}: {type(optimizer).__name__} has a step() of its own, which {use} does not call: "
                        "expected a loop of your own, or an optimizer of the library")
    if engine is None:
        raise TypeError(f"{use}: {type(optimizer).__name__} computes its steps in Python, expected SGD, Adam, or "
                        "another optimizer of the library")
    return engine


def _in_full(options: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Return the options of a Trainer, with dicts instead of single values where both are accepted."""
    names = {"schedule": ("kind", str), "tensorboard": ("folder", (str, os.PathLike)),
             "receipt": ("file", (str, os.PathLike)), "report": ("folder", (str, os.PathLike))}
    return {name: {names[name][0]: value} if name in names and isinstance(value, names[name][1]) else value
            for name, value in options.items()}


def evaluate(model: typing.Any, data: typing.Any, metrics: typing.Sequence[Metric] = (), *, batch_size: int = 256,
             workers: int = 1, shards: int = 0, dtype: dtype = float32,
             forward: typing.Callable[..., typing.Any] | None = None) -> typing.Any:
    """Measure a model on a data set, or on the examples of a DataLoader's loop, on all of the model's devices.

    Each example counts once. A DataLoader's sampler, batch_size, and drop_last are used; a collate_fn or a
    worker_init_fn is an error. Returns the Accuracy for examples (input, label), or with `metrics` a dict of their
    names and values.
    """
    _check_unwrapped("evaluate", model)
    if isinstance(data, DataLoader):
        batch_size = data.batch_size or batch_size
        data = data._examples("evaluate")
    return _core._evaluate(model, data, list(metrics), batch_size, workers, shards, dtype, forward)


class LearningRateCurve:
    """What find_learning_rate() found. A notebook shows the curve.

    points: (rate, loss, smoothed loss) of each step. suggestion: the rate at which the loss falls most steeply.
    """

    def __init__(self, points: list[tuple[float, float, float]], suggestion: float, diverged: bool, svg: str) -> None:
        self.points = points
        self.suggestion = suggestion
        self.diverged = diverged
        self._svg = svg

    def __repr__(self) -> str:
        return f"LearningRateCurve(suggestion={self.suggestion:g}, {len(self.points)} points)"

    def _repr_svg_(self) -> str:
        return self._svg


def find_learning_rate(model: typing.Any, optimizer: typing.Any, train: typing.Any, *, first: float = 1e-7,
                       last: float = 1, steps: int = 100, smoothing: float = 0.98, stop_factor: float = 4,
                       **options: typing.Any) -> LearningRateCurve:
    """Train with rates that rise from `first` to `last` (Smith 2017), and then restore everything.

    Other options are those of Trainer, without those that write files or set the rate.
    """
    _check_unwrapped("find_learning_rate", model)
    engine = _engine_of(optimizer, "find_learning_rate")
    _begin_training(model)
    return LearningRateCurve(*_core._find_learning_rate(model, engine, train, first, last, steps, smoothing,
                                                        stop_factor, _in_full(options)))


def export_onnx(path: str | os.PathLike[str], model: typing.Any, example: typing.Any,
                forward: typing.Callable[..., typing.Any] | None = None, *, dynamic_batch: bool = True,
                batch_axes: typing.Sequence[int] = (), input_names: typing.Sequence[str] = (),
                output_names: typing.Sequence[str] = (), metadata: dict[str, str] | None = None) -> None:
    """Write what model(example) computes in evaluation mode as an ONNX file (opset 17).

    example: a tensor with a batch as axis 0, or several, which model(*example) takes; also lists, tuples, and dicts of
    them, such as (x, (h, c)), whose tensors become inputs in this order. forward(*example): a function that calls the
    model, and returns a tensor or several.
    """
    _check_unwrapped("export_onnx", model)
    arguments = _Structure(tuple(example) if isinstance(example, (list, tuple)) else (example,))
    if not arguments.tensors:
        raise _core.Error("export_onnx: no tensor in the example, expected what the model takes")

    def call(inputs: list[Tensor]) -> list[Tensor]:
        return list(_Structure((forward or model)(*arguments.with_tensors(inputs))).tensors)

    examples = [x.detach().cpu() for x in arguments.tensors]
    _core._export_onnx(path, model, examples, call, dynamic_batch, list(batch_axes), list(input_names),
                       list(output_names), list((metadata or {}).items()))


def verify(*arguments: str, tool: str | None = None, **options: typing.Any) -> str:
    """Run `lockstep verify`, which trains in several layouts and compares all weights. Returns what it printed.

    verify(model="lenet", layouts="1,2,2x1") is `lockstep verify --model lenet --layouts 1,2,2x1`. The tool is the
    program `lockstep` on the path, or `tool`. Raises Error if weights differ.
    """
    program = tool or shutil.which("lockstep")
    if program is None:
        raise _core.Error("verify: there is no program lockstep on the path, expected it there, or verify(tool=PATH)")
    command = [program, "verify", *arguments]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise _core.Error(f"verify: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
