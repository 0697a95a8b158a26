"""A small GPT over the characters of a text.

    python3 language_model.py [file [steps]]
"""

import sys

import lockstep as torch
import lockstep.nn as nn
import lockstep.nn.functional as F
from lockstep.utils.data import Dataset, DataLoader

context, width, heads, layers = 32, 64, 4, 2

text = open(sys.argv[1] if len(sys.argv) > 1 else __file__, encoding="utf-8").read()
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
characters = sorted(set(text))
number = {c: i for i, c in enumerate(characters)}


class Text(Dataset):
    """Pieces of the text, and the same pieces one character later."""

    def __init__(self):
        self.data = torch.tensor([number[c] for c in text])

    def __len__(self):
        return len(text) - context

    def __getitem__(self, i):
        return self.data[i:i + context], self.data[i + 1:i + 1 + context]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (y.reshape(n, t, heads, width // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(len(characters), width)
        self.position = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(characters))

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.token(x) + self.position[:x.shape[1]])))


@torch.no_grad()
def write(model, start, length):
    model.eval()
    for _ in range(length):
        x = torch.tensor([[number[c] for c in start[-context:]]])
        start += characters[model(x)[0, -1].argmax().item()]
    model.train()
    return start


torch.manual_seed(0)
model = GPT()
print(sum(p.numel() for p in model.parameters()), "parameters,", len(characters), "characters")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = DataLoader(Text(), batch_size=32, shuffle=True, drop_last=True)
for step, (x, y) in enumerate(loader.on(model), 1):
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1 or step == steps or step % 50 == 0:
        print(f"step {step}, loss {loss.item():.3f}")
    if step == steps:
        break
print(repr(write(model, text[:8], 40)))
