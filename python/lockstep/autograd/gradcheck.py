"""Checks derivatives against differences: torch.autograd.gradcheck."""

from .. import _core
from .._core import Tensor


class GradcheckError(_core.Error):
    """A derivative that differs from the differences."""


def _differences(f, inputs, i, eps):
    """The rows of the matrix of derivatives of each output by the elements of input i."""
    columns = []
    x = inputs[i]
    with _core.no_grad():
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


def _derivatives(outputs, inputs, i):
    """The same by backward passes."""
    found = []
    for y in outputs:
        columns = []
        for j in range(y.numel()):
            seed = _core.zeros_like(y).reshape(-1)
            seed[j] = 1
            (g,) = _core._autograd.grad([y], [inputs[i]], [seed.reshape(y.shape)], True)
            columns.append(_core.zeros_like(inputs[i]).reshape(-1) if g is None else g.reshape(-1))
        found.append(_core.stack(columns, 1))
    return found


def gradcheck(func, inputs, eps=1e-6, atol=1e-5, rtol=0.001, raise_exception=True, nondet_tol=0.0):
    """Return whether the derivatives of func agree with central differences, for inputs of float64.

    With raise_exception, a derivative that differs is a GradcheckError with both matrices.
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have "
                         "requires_grad=True.")
    for i in checked:
        if inputs[i].dtype != _core.float64:
            raise ValueError(f"gradcheck: input {i} is {inputs[i].dtype}, expected torch.float64: differences of other "
                             "types have too few digits")

    def outputs_of(given):
        found = func(*given)
        return [y for y in ((found,) if isinstance(found, Tensor) else found) if y.is_floating_point()]

    outputs = outputs_of(inputs)
    if not any(y.requires_grad for y in outputs):
        raise ValueError("gradcheck: no output has a gradient, expected one that depends on an input")
    outputs = [y for y in outputs if y.requires_grad]
    for i in checked:
        differences = _differences(lambda given: [y for y, o in zip(outputs_of(given), outputs)], inputs, i, eps)
        for k, (numerical, analytical) in enumerate(zip(differences, _derivatives(outputs, inputs, i))):
            if _core.allclose(analytical, numerical, rtol, atol):
                continue
            if not raise_exception:
                return False
            raise GradcheckError(f"Jacobian mismatch for output {k} with respect to input {i},\n"
                                 f"numerical:{numerical}\nanalytical:{analytical}\n")
    return True
