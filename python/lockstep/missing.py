"""Names that PyTorch has and Lockstep deliberately lacks, with replacements."""

_INSTEAD = {
    "jit": "models run as they are; export_onnx() writes one for other programs",
    "hub": "nothing is downloaded: lockstep.models, and load_state_dict(torch.load(FILE))",
    "profiler": "with torch.Timeline() as timeline, then timeline.write(FILE)",
    "vmap": "functions take batches: a leading axis of all tensors",
    "func": "torch.autograd.grad() gives first derivatives",
    "fx": "torch.summary(net, shape) and torch.StepGraph show a model and its steps",
    "quantization": "train in bfloat16 by torch.autocast; export_onnx() for tools that quantize",
    "ao": "train in bfloat16 by torch.autocast; export_onnx() for tools that quantize",
    "sparse": "tensors are dense",
    "sparse_coo_tensor": "tensors are dense: zeros(), and index_put_() or scatter_()",
    "sparse_csr_tensor": "tensors are dense: zeros(), and index_put_() or scatter_()",
    "nested": "padded tensors, and masks",
    "channels_last": "the library chooses layouts",
    "memory_format": "the library chooses layouts",
    "compiled_with_cxx11_abi": "the library is one file",
    "set_default_tensor_type": "name the type of each tensor: torch.zeros(3, dtype=torch.float64)",
    "get_num_interop_threads": "the library runs independent tasks at once by itself",
    "set_num_interop_threads": "the library runs independent tasks at once by itself",
}

_INSTEAD.update(dict.fromkeys(
    ("fft", "stft", "istft", "complex", "complex64", "complex128", "cfloat", "view_as_complex"),
    "the library has no complex numbers: an axis of two can hold real and imaginary parts"))


def attribute(name):
    """Raise the AttributeError of `lockstep.name`."""
    instead = _INSTEAD.get(name)
    raise AttributeError(f"module 'lockstep' has no attribute '{name}'" + (f": {instead}" if instead else ""))
