"""Losses as modules that call functions of nn.functional."""

from .._core import Module
from . import functional as F

__all__ = []


def _loss(name, function, arguments, weights=(), inputs=("input", "target"), doc=""):
    """Make a loss whose constructor takes `arguments` with their defaults; `weights` are tensors, kept as buffers."""
    usual = dict(arguments)

    def __init__(self, *args, **kwargs):
        Module.__init__(self)
        if len(args) > len(usual):
            raise TypeError(f"{name}() takes at most {len(usual)} arguments, got {len(args)}")
        given = dict(zip(usual, args))
        for key, value in kwargs.items():
            if key not in usual or key in given:
                raise TypeError(f"{name}() got an unexpected or repeated argument '{key}'")
            given[key] = value
        for key, value in {**usual, **given}.items():
            if key in weights:
                self.register_buffer(key, value)
            else:
                setattr(self, key, value)

    def forward(self, *tensors):
        return function(*tensors, **{key: getattr(self, key) for key in usual if key not in ("size_average", "reduce")})

    def checked(self, *tensors, **kwargs):
        if getattr(self, "size_average", None) is not None or getattr(self, "reduce", None) is not None:
            raise TypeError(f"{name}: size_average and reduce are old, expected reduction='mean', 'sum', or 'none'")
        tensors = list(tensors) + [kwargs.pop(key) for key in inputs[len(tensors):] if key in kwargs]
        if kwargs:
            raise TypeError(f"{name}: unexpected arguments {', '.join(kwargs)}")
        return forward(self, *tensors)

    globals()[name] = type(name, (Module,), dict(__init__=__init__, forward=checked, __module__=__name__, __doc__=doc))
    __all__.append(name)


_OLD = [("size_average", None), ("reduce", None)]
_MEAN = [("reduction", "mean")]

_loss("L1Loss", F.l1_loss, _OLD + _MEAN, doc="The mean absolute difference.")
_loss("MSELoss", F.mse_loss, _OLD + _MEAN, doc="The mean squared difference.")
_loss("SmoothL1Loss", F.smooth_l1_loss, _OLD + _MEAN + [("beta", 1.0)], doc="Squared below beta, absolute above.")
_loss("HuberLoss", F.huber_loss, _MEAN + [("delta", 1.0)], doc="Squared below delta, delta times absolute above.")
_loss("CrossEntropyLoss", F.cross_entropy,
      [("weight", None), ("size_average", None), ("ignore_index", -100), ("reduce", None), ("reduction", "mean"),
       ("label_smoothing", 0.0)], ("weight",), doc="Of logits [N, C, ..] and classes [N, ..], or probabilities.")
_loss("NLLLoss", F.nll_loss,
      [("weight", None), ("size_average", None), ("ignore_index", -100), ("reduce", None), ("reduction", "mean")],
      ("weight",), doc="Of log-probabilities [N, C, ..] and classes [N, ..].")
_loss("KLDivLoss", F.kl_div, _OLD + _MEAN + [("log_target", False)], doc="Of log-probabilities and probabilities.")
_loss("BCELoss", F.binary_cross_entropy, [("weight", None)] + _OLD + _MEAN, ("weight",), doc="Of probabilities.")
_loss("BCEWithLogitsLoss", F.binary_cross_entropy_with_logits,
      [("weight", None)] + _OLD + _MEAN + [("pos_weight", None)], ("weight", "pos_weight"), doc="Of logits.")
_loss("PoissonNLLLoss", F.poisson_nll_loss,
      [("log_input", True), ("full", False), ("size_average", None), ("eps", 1e-8), ("reduce", None),
       ("reduction", "mean")], inputs=("log_input", "target"), doc="Of a Poisson distribution.")
_loss("GaussianNLLLoss", F.gaussian_nll_loss, [("full", False), ("eps", 1e-6), ("reduction", "mean")],
      inputs=("input", "target", "var"), doc="Of a normal distribution with variances.")
_loss("HingeEmbeddingLoss", F.hinge_embedding_loss, [("margin", 1.0)] + _OLD + _MEAN, doc="Targets are 1 or -1.")
_loss("SoftMarginLoss", F.soft_margin_loss, _OLD + _MEAN, doc="Targets are 1 or -1.")
_loss("MarginRankingLoss", F.margin_ranking_loss, [("margin", 0.0)] + _OLD + _MEAN,
      inputs=("input1", "input2", "target"), doc="Targets of 1: input1 is to be larger.")
_loss("CosineEmbeddingLoss", F.cosine_embedding_loss, [("margin", 0.0)] + _OLD + _MEAN,
      inputs=("input1", "input2", "target"), doc="Targets of 1: vectors are to point the same way.")
_loss("TripletMarginLoss", F.triplet_margin_loss,
      [("margin", 1.0), ("p", 2.0), ("eps", 1e-6), ("swap", False)] + _OLD + _MEAN,
      inputs=("anchor", "positive", "negative"), doc="The positive is to be nearer than the negative, by the margin.")
_loss("TripletMarginWithDistanceLoss", F.triplet_margin_with_distance_loss,
      [("distance_function", None), ("margin", 1.0), ("swap", False), ("reduction", "mean")],
      inputs=("anchor", "positive", "negative"), doc="TripletMarginLoss with a distance of the caller's.")
_loss("MultiMarginLoss", F.multi_margin_loss,
      [("p", 1), ("margin", 1.0), ("weight", None)] + _OLD + _MEAN, ("weight",),
      doc="Of scores [N, C] and classes [N].")
_loss("MultiLabelMarginLoss", F.multilabel_margin_loss, _OLD + _MEAN,
      doc="Of scores and lists of classes, ended by -1.")
_loss("MultiLabelSoftMarginLoss", F.multilabel_soft_margin_loss, [("weight", None)] + _OLD + _MEAN, ("weight",),
      doc="Of logits and 0 or 1 for each class.")
_loss("CTCLoss", F.ctc_loss, [("blank", 0), ("reduction", "mean"), ("zero_infinity", False)],
      inputs=("log_probs", "targets", "input_lengths", "target_lengths"), doc="Of sequences without alignment.")


class CosineSimilarity(Module):
    """The cosine of two vectors along an axis."""

    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference of vectors."""

    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1, x2):
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


__all__ += ["CosineSimilarity", "PairwiseDistance"]
