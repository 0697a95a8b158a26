"""kl_divergence(): how far a distribution is from another one."""

import math

from .. import _core
from ..nn import functional as F
from .bernoulli import Bernoulli
from .categorical import Categorical
from .exponential import Exponential
from .independent import Independent
from .laplace import Laplace
from .normal import Normal
from .uniform import Uniform

_KL = {}


def register_kl(type_p, type_q):
    """As a decorator: the function computes the divergence of a type_p from a type_q."""
    def register(function):
        _KL[type_p, type_q] = function
        return function

    return register


def kl_divergence(p, q):
    """Return the Kullback-Leibler divergence KL(p || q) for each element of the batch."""
    for of_p in type(p).__mro__:
        for of_q in type(q).__mro__:
            if (of_p, of_q) in _KL:
                return _KL[of_p, of_q](p, q)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                              f"{type(q).__name__}")


def _inf_where(condition, x):
    return _core.where(condition, _core.full_like(x, math.inf), x)


@register_kl(Normal, Normal)
def _(p, q):
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


# The parts of 0 and 1: a value that is impossible in p adds nothing, and one that is impossible only in q adds inf.
@register_kl(Bernoulli, Bernoulli)
def _(p, q):
    def part(probs, other, log_ratio):
        x = _inf_where(other == 0, probs * log_ratio)
        return _core.where(probs == 0, _core.zeros_like(x), x)

    return (part(p.probs, q.probs, F.softplus(-q.logits) - F.softplus(-p.logits))
            + part(1 - p.probs, 1 - q.probs, F.softplus(q.logits) - F.softplus(p.logits)))


@register_kl(Categorical, Categorical)
def _(p, q):
    x = _inf_where((q.probs == 0).expand_as(p.probs + q.probs), p.probs * (p.logits - q.logits))
    return _core.where((p.probs == 0).expand_as(x), _core.zeros_like(x), x).sum(-1)


@register_kl(Uniform, Uniform)
def _(p, q):
    x = ((q.high - q.low) / (p.high - p.low)).log()
    return _inf_where((q.low > p.low).logical_or(q.high < p.high), x)


@register_kl(Exponential, Exponential)
def _(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Laplace, Laplace)
def _(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return distance / q.scale + ratio * (-distance / p.scale).exp() - ratio.log() - 1


@register_kl(Independent, Independent)
def _(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: Independent of different numbers of axes")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))
