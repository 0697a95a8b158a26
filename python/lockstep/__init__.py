"""Lockstep: trains neural networks on many devices as if they were one.

>>> import lockstep as torch
>>> x = torch.randn(2, 3)
>>> x.shape
torch.Size([2, 3])
"""

from ._core import *  # noqa: F401,F403
from . import _core
from ._core import (  # noqa: F401
    Accuracy, AuditResult, DataSource, EpochReport, Metric, Predictor, Run, StepReport, TensorBoardWriter,
    TrainingResult, __version__, load_run, load_weights, open_data, save_weights, weights_sha256)
from .grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from .composed import (  # noqa: F401
    BFloat16Tensor, BoolTensor, ByteTensor, DoubleTensor, FloatTensor, HalfTensor, IntTensor, LongTensor, count_nonzero,
    diag, diagonal, diff, finfo, get_default_dtype, iinfo, is_floating_point, is_tensor, numel, set_default_dtype,
    trace)
from .size import Size  # noqa: F401
from . import tensors  # noqa: F401

for _name in (
    "avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d bilinear binary_cross_entropy_with_logits cdist celu conv1d "
    "conv2d conv3d conv_transpose1d conv_transpose2d cosine_embedding_loss cosine_similarity ctc_loss dropout "
    "embedding group_norm hardshrink hinge_embedding_loss kl_div layer_norm margin_ranking_loss max_pool1d max_pool2d "
    "max_pool3d pairwise_distance pixel_shuffle pixel_unshuffle poisson_nll_loss prelu rms_norm selu threshold "
    "triplet_margin_loss"
).split():
    if hasattr(_core.functional, _name):
        globals()[_name] = getattr(_core.functional, _name)
del _name

double = float64
float = float32  # noqa: A001
half = float16
long = int64
int = int32 = short = int16 = int8 = int64  # noqa: A001
bool = _core._bool  # noqa: A001
inf = __import__("math").inf
nan = __import__("math").nan
pi = __import__("math").pi
e = __import__("math").e

from . import models, nn, optim  # noqa: F401,E402
from . import accelerator, amp, autograd, backends, cuda, datasets, distributed, distributions  # noqa: F401,E402
from . import aliases, arrangement, elementwise, gluon, linalg  # noqa: F401,E402
from . import multiprocessing, order, random, transforms, utils  # noqa: F401,E402
from .random import fork_rng, get_rng_state, initial_seed, seed, set_rng_state  # noqa: F401,E402
from .amp import autocast, get_autocast_dtype, is_autocast_enabled  # noqa: F401,E402
from .nn.parallel import per_shard  # noqa: F401,E402
from .backends import (  # noqa: F401,E402
    are_deterministic_algorithms_enabled, set_float32_matmul_precision, use_deterministic_algorithms)
from .generator import Generator  # noqa: F401,E402
from .serialization import load, save  # noqa: F401,E402
from . import hints, metrics, notebook, onnx, version  # noqa: F401,E402
from .missing import attribute as __getattr__  # noqa: F401,E402
from .printing import set_printoptions  # noqa: F401,E402
from .settings import (  # noqa: F401,E402
    compile, get_default_device, get_num_threads, set_default_device, set_num_threads)
from .notebook import StepGraph, Timeline, plot, progress, summary  # noqa: F401,E402
from .training import (  # noqa: F401,E402
    Trainer, evaluate, export_onnx, find_learning_rate, verify)

aliases.install()
for _part in (arrangement, elementwise, linalg, order):
    _part.install(__import__("sys").modules[__name__])
del _part
notebook.install()
hints.install()
# Runs before destroy_process_group() of lockstep.distributed, because a run in progress must stop first.
__import__("atexit").register(_core._leave)
