"""torch.autograd.detect_anomaly: accepted, without effect."""


class set_detect_anomaly:  # noqa: N801
    """Accepted, without effect: errors of a backward pass name the operation anyway."""

    def __init__(self, mode, check_nan=True):
        pass

    def __enter__(self):
        return None

    def __exit__(self, *args):
        pass


class detect_anomaly(set_detect_anomaly):  # noqa: N801
    """The same as a context manager."""

    def __init__(self, check_nan=True):
        super().__init__(True, check_nan)
