#!/usr/bin/env python3
"""all-mpnet-base-v2 over our pieces, told who speaks: what teachers are made of. Needs PyTorch.

    training/mpnet.py WHEELS       holds it to transformers' own; see README.md for the wheels
"""

import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from pack import MPNET_CHANNEL, MPNET_FIRST, MPNET_LAYERS, MPNET_LONGEST, mpnet, mpnet_archive, vocabulary

WIDTH, INNER, HEADS, EPSILON = 768, 3072, 12, 1e-5


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_key_value, self.attended = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH, EPSILON), nn.LayerNorm(WIDTH, EPSILON)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, bias):
        query, key, value = self.query_key_value(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, bias).transpose(1, 2).flatten(2)
        x = self.first_norm(x + self.drop(self.attended(attended)))
        return self.second_norm(x + self.drop(self.outer(F.gelu(self.inner(x)))))


class Mpnet(nn.Module):
    def __init__(self, count: int):
        """With as many words as there are pieces, and three more: <s>, a user and a tool."""
        super().__init__()
        self.words, self.places = nn.Embedding(count + 3, WIDTH), nn.Embedding(MPNET_LONGEST, WIDTH)
        self.norm, self.drop = nn.LayerNorm(WIDTH, EPSILON), nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(MPNET_LAYERS))
        # How much each head looks so far ahead or back; not taught.
        self.register_buffer("distances", torch.zeros(32, HEADS))
        there = torch.arange(MPNET_LONGEST)
        self.register_buffer("buckets", bucket(there[None, :] - there[:, None]), persistent=False)

    def forward(self, ids, inside, channel):
        extra = self.words.num_embeddings - 3
        front = torch.stack([torch.full_like(channel, extra), channel + extra + 1], 1)
        # Attention wants lengths of whole eights.
        more = -(ids.shape[1] + 2) % 8
        ids, mask = F.pad(torch.cat([front, ids], 1), (0, more)), F.pad(F.pad(inside, (2, 0), value=True), (0, more))
        most = ids.shape[1]
        x = self.drop(self.norm(self.words(ids) + self.places.weight[:most]))
        bias = self.distances[self.buckets[:most, :most]].permute(2, 0, 1)[None]
        bias = bias.masked_fill(~mask[:, None, None, :], -1e4).to(self.layers[0].attended(x[:1, :1]).dtype)
        for layer in self.layers:
            x = layer(x, bias)
        return x, mask

    def take(self, tensors: dict) -> None:
        self.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()})


def bucket(ahead):
    """Near distances each by itself, far ones in growing steps."""
    far = ahead.abs().clamp(min=1)
    grown = (8 + (torch.log(far / 8) / math.log(128 / 8) * 8).long()).clamp(max=15)
    return torch.where(ahead > 0, 16, 0) + torch.where(ahead.abs() < 8, ahead.abs(), grown)


def main() -> None:
    """Random pieces through both."""
    from transformers import MPNetModel

    archive = mpnet_archive(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder)
        theirs = MPNetModel.from_pretrained(f"{folder}/all-mpnet-base-v2", add_pooling_layer=False).eval()
    numbers = np.arange(4, len(vocabulary(archive)) - 1)
    ours = Mpnet(len(numbers)).eval()
    ours.take(mpnet(archive, numbers))
    random, size = torch.Generator().manual_seed(1), 150
    ids, channel = torch.randint(0, len(numbers), (5, size), generator=random), torch.tensor([0, 1, 0, 1, 1])
    inside = torch.arange(size)[None, :] < torch.tensor([size, 1, 17, 80, size - 1])[:, None]
    with torch.no_grad():
        rows, mask = ours(ids, inside, channel)
        front = torch.stack([torch.full_like(channel, MPNET_FIRST), channel + MPNET_CHANNEL], 1)
        given = torch.cat([front, torch.where(inside, ids + 4, 1)], 1)
        said = theirs(input_ids=given, attention_mask=(given != 1).long()).last_hidden_state
    far = ((rows[:, : size + 2] - said).abs() * mask[:, : size + 2, None]).max().item()
    print(f"largest difference: {far:.1e}")
    sys.exit(far > 1e-4)


if __name__ == "__main__":
    main()
