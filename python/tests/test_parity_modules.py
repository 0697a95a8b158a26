"""A part of parity_modules.py: one module of each kind against PyTorch."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import parity_modules  # noqa: E402

NAMES = ["Linear", "Conv2d", "BatchNorm2d", "LayerNorm", "GroupNorm", "MaxPool2d", "ReLU", "GELU", "Embedding", "LSTM",
         "GRU", "MultiheadAttention", "TransformerEncoderLayer", "CrossEntropyLoss", "BCEWithLogitsLoss", "MSELoss"]


def test_modules_agree_with_pytorch():
    count, lines = parity_modules.run(NAMES)
    assert count > 20
    assert not lines, "\n".join(lines)
