"""Layers whose input sizes follow from the first batch."""

from .._core import (BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d,
                     InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, Linear)

from .module import _forget_call_hooks

__all__ = []


def _become(self, args, output):
    """Change the class of a lazy layer to the class with known sizes, after its first batch."""
    hooks = self._forward_hooks
    for number in [n for n, hook in hooks.items() if hook is _become]:
        del hooks[number]
    _forget_call_hooks(self)
    if self.cls_to_become is not None:
        self._become(self.cls_to_become)


def _lazy(layer):
    """Make the lazy class of a layer, without its first argument; the first call turns instances into the layer's."""

    def __init__(self, *args, **kwargs):
        layer.__init__(self, 0, *args, **kwargs)
        self.register_forward_hook(_become)

    def _get_name(self):
        known = all(p._shape_known() for p in (*self.parameters(recurse=False), *self.buffers(recurse=False)))
        return layer.__name__ if known else "Lazy" + layer.__name__

    name = "Lazy" + layer.__name__
    text = f"{layer.__name__} whose {'features' if layer is Linear else 'channels'} follow from the first batch."
    members = dict(__init__=__init__, _get_name=_get_name, __doc__=text, __module__=__name__, cls_to_become=layer)
    globals()[name] = type(name, (layer,), members)
    __all__.append(name)


for _layer in (Linear, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, BatchNorm1d, BatchNorm2d, BatchNorm3d,
               InstanceNorm1d, InstanceNorm2d, InstanceNorm3d):
    _lazy(_layer)
