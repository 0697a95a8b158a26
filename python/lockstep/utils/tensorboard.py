"""The writer of torch.utils.tensorboard. Trainer writes curves by itself: Trainer(tensorboard=FOLDER)."""

from .._core import TensorBoardWriter as SummaryWriter  # noqa: F401
