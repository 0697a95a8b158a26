"""Initial values: net.initialize(init.Normal(sigma=0.01))."""


class Normal:
    """Normal with standard deviation sigma."""

    def __init__(self, sigma=0.01):
        self._text = ("normal", {"std": sigma})


class Uniform:
    """Uniform in [-scale, scale)."""

    def __init__(self, scale=0.07):
        self._text = ("uniform", {"scale": scale})


class Xavier:
    """Uniform of Glorot and Bengio, with the gain that makes Gluon's default magnitude of 3."""

    def __init__(self, rnd_type="uniform", factor_type="avg", magnitude=3):
        if rnd_type != "uniform" or factor_type != "avg" or magnitude != 3:
            raise ValueError("Xavier: expected rnd_type='uniform', factor_type='avg', magnitude=3")
        self._text = ("xavier", {})
