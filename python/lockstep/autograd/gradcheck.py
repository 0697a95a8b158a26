"""Compares derivatives with finite differences: torch.autograd.gradcheck."""

from .. import _core
from .._core import Tensor
from ..grad_mode import no_grad


class GradcheckError(_core.Error):
    """A derivative that differs from the finite differences."""


def _differences(f, inputs, i, eps):
    """Return the rows of the matrix of derivatives of each output by the elements of input i, from differences."""
    columns = []
    x = inputs[i]
    with no_grad():
        flat = x.detach().clone().reshape(-1)
        for j in range(flat.numel()):
            values = []
            for step in (eps, -eps):
                moved = flat.clone()
                moved[j] = moved[j] + step
                given = [moved.reshape(x.shape) if k == i else y for k, y in enumerate(inputs)]
                values.append([y.detach().clone() for y in f(given)])
            columns.append([(a - b).reshape(-1) / (2 * eps) for a, b in zip(*values)])
    return [_core.stack([column[k] for column in columns]) for k in range(len(columns[0]))]


def _derivatives(outputs, inputs):
    """Return the same matrices from backward passes, by output and input."""
    found = []
    for k, y in enumerate(outputs):
        columns = []
        for j in range(y.numel()):
            seeds = [_core.zeros_like(other).reshape(-1) for other in outputs]
            seeds[k][j] = 1
            seeds = [seed.reshape(other.shape) for seed, other in zip(seeds, outputs)]
            columns.append([(_core.zeros_like(x) if g is None else g).reshape(-1) for x, g in zip(
                inputs, _core._autograd.grad(outputs, inputs, seeds, True))])
        found.append([_core.stack(column, 1) for column in zip(*columns)])
    return found


def gradcheck(func, inputs, eps=1e-6, atol=1e-5, rtol=0.001, raise_exception=True, nondet_tol=0.0):
    """Return whether the derivatives of func agree with central differences, for inputs of float64.

    With raise_exception, a derivative that differs is a GradcheckError with both matrices.
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck: no input has requires_grad=True, expected one that the function differentiates")
    for i in checked:
        if inputs[i].dtype != _core.float64:
            raise ValueError(f"gradcheck: input {i} is {inputs[i].dtype}, expected torch.float64: differences of other "
                             "types have too few digits")

    def outputs_of(given):
        found = func(*given)
        return [y for y in ((found,) if isinstance(found, Tensor) else found) if y.is_floating_point()]

    def kept_outputs(given):
        return [y for y, kept in zip(outputs_of(given), depends) if kept]

    outputs = outputs_of(inputs)
    depends = [y.requires_grad for y in outputs]
    if not any(depends):
        raise ValueError("gradcheck: no output has a gradient, expected one that depends on an input")
    outputs = [y for y, kept in zip(outputs, depends) if kept]
    derivatives = _derivatives(outputs, [inputs[i] for i in checked])
    for number, i in enumerate(checked):
        differences = _differences(kept_outputs, inputs, i, eps)
        for k, numerical in enumerate(differences):
            analytical = derivatives[k][number]
            if _core.allclose(analytical, numerical, rtol, atol):
                continue
            if not raise_exception:
                return False
            raise GradcheckError(f"Jacobian mismatch for output {k} with respect to input {i},\n"
                                 f"numerical:{numerical}\nanalytical:{analytical}\n")
    return True
