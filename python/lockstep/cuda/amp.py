"""Mixed precision under the names of torch.cuda.amp."""

from .. import amp
from ..amp import GradScaler  # noqa: F401


class autocast(amp.autocast):
    """amp.autocast("cuda"), which holds on all devices."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cuda", dtype, enabled, cache_enabled)
