"""What evaluate() and Trainer measure: evaluate(net, data, [metrics.accuracy(), metrics.top_k_accuracy(5)])."""

from ._core import Metric  # noqa: F401
from ._core.metrics import *  # noqa: F401,F403
