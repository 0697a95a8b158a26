"""Settings that permit PyTorch what the library never does: they are accepted, without effect.

>>> torch.backends.cudnn.benchmark = True

Results are deterministic with all of them, and products of float32 are computed in float32.
"""

import sys

from . import _core, cuda


class _Settings:
    """Values that a program may set, each with the values that are accepted."""

    def __init__(self, name, **accepted):
        self.__dict__.update({setting: values[0] for setting, values in accepted.items()}, _name=name,
                             _accepted=accepted)

    def __setattr__(self, setting, value):
        if setting not in self._accepted:
            raise AttributeError(f"{self._name} has no setting {setting}")
        if value not in self._accepted[setting]:
            raise _core.Error(f"{self._name}.{setting} = {value!r}, expected {self._accepted[setting][0]!r}")
        self.__dict__[setting] = value


_EITHER = (False, True)
cudnn = _Settings("cudnn", benchmark=_EITHER, deterministic=(True, False), allow_tf32=_EITHER, enabled=(True,))
cudnn.__dict__.update(is_available=cuda.is_available)
_matmul = _Settings("cuda.matmul", allow_tf32=_EITHER, allow_fp16_reduced_precision_reduction=_EITHER,
                    allow_bf16_reduced_precision_reduction=_EITHER)
_cuda, mps = _Settings("cuda"), _Settings("mps")
_cuda.__dict__.update(matmul=_matmul, is_built=lambda: True)
mps.__dict__.update(is_available=lambda: False, is_built=lambda: False)
globals()["cuda"] = _cuda
for _name in ("cudnn", "cuda", "mps"):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name]
del _name


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Do nothing: results are always deterministic."""


def are_deterministic_algorithms_enabled() -> bool:
    """Return True."""
    return True


def set_float32_matmul_precision(precision: str) -> None:
    """Do nothing: products of float32 are computed in float32. The argument is "highest", "high", or "medium"."""
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"precision is {precision!r}, expected 'highest', 'high', or 'medium'")
