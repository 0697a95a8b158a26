"""GPT.generate: with and without the cache of keys and values, and with a forward() of Python."""

import pytest

import lockstep as torch
from lockstep import models


def small_gpt(kind=models.GPT):
    torch.manual_seed(1)
    return kind(vocab_size=11, block_size=16, n_layer=2, n_head=2, n_embd=16)


@pytest.mark.parametrize("options", [{}, {"top_k": 1}, {"top_k": 3, "temperature": 0.7}])
@pytest.mark.parametrize("prompt", [[1], [1, 2, 3, 4, 5], list(range(10)) * 2])
def test_the_cache_does_not_change_the_text(options, prompt):
    gpt = small_gpt()
    text = gpt.generate(prompt, 20, seed=3, **options)
    assert text[:len(prompt)] == prompt and len(text) == len(prompt) + 20
    assert gpt.generate(prompt, 20, seed=3, use_cache=False, **options) == text


def test_a_forward_of_python_sees_all_tokens():
    lengths = []

    class Watching(models.GPT):
        def forward(self, ids):
            lengths.append(ids.shape[1])
            return super().forward(ids)

    text = small_gpt(Watching).generate([1, 2], 3, seed=3)
    assert lengths == [2, 3, 4]
    assert text == small_gpt().generate([1, 2], 3, seed=3)


def test_a_hook_sees_all_tokens():
    gpt, lengths = small_gpt(), []
    gpt.register_forward_hook(lambda module, args, output: lengths.append(output.shape[1]))
    gpt.generate([1, 2], 3, seed=3)
    assert lengths == [2, 3, 4]
