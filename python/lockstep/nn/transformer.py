"""Stacks of transformer layers, and encoder and decoder together."""

import copy

from .. import _core
from .._core import Module, TransformerDecoderLayer, TransformerEncoderLayer
from . import init
from .containers import ModuleList


def _refuse_blocks(cls, **more):
    super(Module, cls).__init_subclass__(**more)
    for name in ("_sa_block", "_mha_block", "_ff_block"):
        if name in cls.__dict__:
            raise TypeError(f"{cls.__name__}.{name}: the library's layer does not call it, expected forward()")


for _class in (TransformerEncoderLayer, TransformerDecoderLayer):
    _class.__init_subclass__ = classmethod(_refuse_blocks)
del _class


def _copies(layer, n):
    return ModuleList([copy.deepcopy(layer) for _ in range(n)])


class TransformerEncoder(Module):
    """Copies of a layer, one after the other. Each begins with values of its own."""

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies(encoder_layer, num_layers), num_layers, norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a layer, one after the other, which all attend to the memory."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies(decoder_layer, num_layers), num_layers, norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=None, memory_is_causal=False):
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                        bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder, each with a norm after its last layer. Matrices begin as Xavier gives them."""

    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048,
                 dropout=0.1, activation="relu", custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, device=None, dtype=None):
        super().__init__()
        options = dict(d_model=d_model, nhead=nhead, dim_feedforward=dim_feedforward, dropout=dropout,
                       activation=activation, layer_norm_eps=layer_norm_eps, batch_first=batch_first,
                       norm_first=norm_first)
        norm = lambda: _core.LayerNorm(d_model, eps=layer_norm_eps)  # noqa: E731
        self.encoder = custom_encoder or TransformerEncoder(TransformerEncoderLayer(**options), num_encoder_layers,
                                                            norm())
        self.decoder = custom_decoder or TransformerDecoder(TransformerDecoderLayer(**options), num_decoder_layers,
                                                            norm())
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        if device is not None or dtype is not None:
            self.to(device, dtype)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
                memory_is_causal=False):
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                            tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None):
        """Return the mask [sz, sz] that hides later positions: -inf above the diagonal."""
        mask = _core.full((sz, sz), float("-inf")).triu(1)
        return mask if device is None else mask.to(device)
