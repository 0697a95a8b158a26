#!/usr/bin/env python3
"""Tokens per second of GPT training in PyTorch, on one core: the peer of

    OMP_NUM_THREADS=1 taskset -c 0 lockstep bench train --model gpt --optimizer adamw --num-devices 1 --shards 1

Both train the same model (4 layers, width 128, 4 heads, context 128, dropout 0.1, 65 characters) on batches of 32
windows of random characters, in f32, with AdamW and gradients clipped to a norm of 1.

    OMP_NUM_THREADS=1 taskset -c 0 python3 bench/gpt_pytorch.py
"""
import argparse
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads, context, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).bool())

    def attention(self, x):
        n, t, width = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.c_attn(x).split(width, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            dropout = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        else:
            scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
            scores = scores.masked_fill(~self.mask[:t, :t], -math.inf)
            y = self.drop(scores.softmax(-1)) @ v
        return self.drop(self.c_proj(y.transpose(1, 2).reshape(n, t, width)))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.drop(self.c_out(F.gelu(self.c_fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, characters, layers, width, heads, context, dropout):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.Sequential(*(Block(width, heads, context, dropout) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, characters, bias=False)

    def forward(self, ids):
        x = self.drop(self.wte(ids) + self.wpe.weight[:ids.shape[1]])
        return self.lm_head(self.ln_f(self.h(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"layers": 4, "width": 128, "heads": 4, "context": 128, "batch-size": 32, "characters": 65,
                        "steps": 10, "rounds": 5, "threads": 1}.items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.1)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    model = GPT(o.characters, o.layers, o.width, o.heads, o.context, o.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    ids = torch.randint(o.characters, (64, o.batch_size, o.context + 1))

    def step(i):
        text = ids[i % len(ids)]
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    for i in range(o.steps):
        step(i)
    seconds = []
    for i in range(o.steps * o.rounds):
        begin = time.perf_counter()
        step(i)
        seconds.append(time.perf_counter() - begin)
    tokens = o.batch_size * o.context
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s), "
          f"{sum(p.numel() for p in model.parameters())} parameters")
    print(f"tokens/s, median step   {tokens / statistics.median(seconds):.0f}")
    print(f"tokens/s, fastest step  {tokens / min(seconds):.0f}")


if __name__ == "__main__":
    main()
