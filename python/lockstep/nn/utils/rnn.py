"""Sequences of different lengths."""

from ... import _core


def pad_sequence(sequences, batch_first=False, padding_value=0.0):
    """Stack sequences [L, ..] of different lengths, with padding, as [T, N, ..], or with batch_first [N, T, ..]."""
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: no sequences, expected at least one")
    longest = max(x.shape[0] for x in sequences)
    padded = []
    for x in sequences:
        if x.shape[0] < longest:
            rest = _core.full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype, device=x.device)
            x = _core.cat([x, rest])
        padded.append(x)
    return _core.stack(padded, 0 if batch_first else 1)


def pack_padded_sequence(*args, **kwargs):
    raise NotImplementedError("pack_padded_sequence: recurrent layers take padded sequences alone")


pack_sequence = pad_packed_sequence = pack_padded_sequence
