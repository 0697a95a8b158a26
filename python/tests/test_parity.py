import pytest

pytest.importorskip("torch", reason="PyTorch, whose samples these are, is not installed")

# A few functions of each kind; python/tests/parity.py compares all.
FUNCTIONS = ("add sub mul div floor_divide remainder pow clamp where sum mean var std max min argmax prod cumsum sort "
             "topk unique gather scatter index_select masked_fill einsum matmul transpose permute reshape squeeze "
             "split cat __getitem__ eq logical_and nonzero nn.functional.gelu nn.functional.pad "
             "nn.functional.max_pool2d nn.functional.nll_loss").split()


def test_a_part_of_pytorchs_samples():
    import parity

    counts, lines = parity.run(set(FUNCTIONS), most=4)
    assert not [line for line in lines if line[3] == "disagree"]
    assert len(counts) == len(FUNCTIONS) and sum(c["agree"] for c in counts.values()) > 400
