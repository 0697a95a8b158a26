"""torch.onnx.export over export_onnx()."""

import os
import tempfile

from . import _core
from .training import export_onnx


def export(model, args, f, export_params=True, verbose=False, input_names=None, output_names=None, opset_version=None,
           do_constant_folding=True, dynamic_axes=None):
    """Write what model(*args) computes in evaluation mode as an ONNX file of opset 17.

    f: a path, or a file that is open for writing bytes. dynamic_axes may name only axis 0 of inputs and outputs, the
    batch. Without it, the file has the example's batch size.
    """
    if not export_params:
        raise _core.Error("onnx.export: export_params=False, expected True: the file has the weights")
    if opset_version not in (None, 17):
        raise _core.Error(f"onnx.export: opset_version={opset_version}, expected 17 or None")
    for name, axes in (dynamic_axes or {}).items():
        if set(axes) - {0}:
            raise _core.Error(f"onnx.export: dynamic_axes of '{name}' are {sorted(axes)}, expected axis 0 alone, the "
                              "batch")
    options = dict(dynamic_batch=bool(dynamic_axes), input_names=list(input_names or ()),
                   output_names=list(output_names or ()))
    if not hasattr(f, "write"):
        export_onnx(f, model, args, **options)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        export_onnx(path, model, args, **options)
        with open(path, "rb") as file:
            f.write(file.read())
