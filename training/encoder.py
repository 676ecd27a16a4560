#!/usr/bin/env python3
"""Trains the second look: teachers, then one encoder that learns from all of them. Needs a GPU and PyTorch.

    encoder.py FOLDER --teach SEED [--epochs N]     one teacher; leaves what it says of all windows beside the set
    encoder.py FOLDER --distil [--steps N]          the encoder, from every teacher in FOLDER; writes FOLDER/encoder.npz and
                                                what it says of all windows

FOLDER is what pack.py writes. A teacher is all-mpnet-base-v2 with a head, fine-tuned. The encoder is all-MiniLM-L6-v2 with a
smaller head, and what ships of it are eight bits a number.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fast import Second
from mpnet import WIDTH, Mpnet
from pools import DEVICE, POOLS, Lessons, held_out, logits_of, read, say
from reference import dequantised, quantise
from train import Average, kept_to, loss_of, rate_at, text_raw
from windows import Set, figures
from wordpiece import Asset

# BERT's numbers of what a window begins with: [CLS], and [unused0] for a user or [unused1] for a tool.
FIRST, CHANNEL = 101, 1


class MiniLM(nn.Module):
    """all-MiniLM-L6-v2 over our pieces, told who speaks."""

    def __init__(self, path: Path):
        super().__init__()
        from transformers import BertConfig, BertModel

        data = dict(np.load(path))
        numbers = data.pop("numbers")
        state = {name: torch.tensor(value) for name, value in dequantised(data).items()}
        config = BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        self.bert = BertModel(config, add_pooling_layer=False)
        missing = self.bert.load_state_dict(state, strict=False)
        print("missing of MiniLM:", missing.missing_keys, flush=True)
        self.register_buffer("numbers", torch.tensor(numbers).long())

    def rows(self, ids, inside, channel):
        front = torch.stack([torch.full_like(channel, FIRST), channel + CHANNEL], 1)
        ids = torch.cat([front, torch.where(inside, self.numbers[ids], 0)], 1)
        mask = F.pad(inside, (2, 0), value=True)
        return self.bert(input_ids=ids, attention_mask=mask.long()).last_hidden_state, mask


class Teacher(nn.Module):
    def __init__(self, folder: Path):
        super().__init__()
        state = dequantised({name: value for path in sorted(folder.glob("mpnet-*.npz")) for name, value in np.load(path).items()})
        self.body = Mpnet(len(state["words.weight"]) - 3)
        self.body.take(state)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(2 * WIDTH, 384), nn.GELU(), nn.Dropout(0.1), nn.Linear(384, 6))

    def forward(self, ids, inside, channel):
        rows, mask = self.body(ids, inside, channel)
        mean = (rows * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(torch.cat([rows[:, 0], mean], -1))


class Encoder(MiniLM):
    """Looks at the first row alone, so that the last layer needs no other."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.drop = nn.Dropout(0.1)
        self.pooler, self.labels = nn.Linear(384, 384), nn.Linear(384, 6)

    def forward(self, ids, inside, channel):
        first = self.rows(ids, inside, channel)[0][:, 0]
        return self.labels(self.drop(torch.tanh(self.pooler(self.drop(first)))))

    def head_parameters(self) -> list:
        return [*self.pooler.parameters(), *self.labels.parameters()]

    @torch.no_grad()
    def tensors(self) -> dict:
        """As FORMAT.md has them: a row of `words` for each of our pieces, then [CLS], a user and a tool."""
        state = {name: value.float().cpu() for name, value in self.bert.state_dict().items()}
        numbers = torch.cat([self.numbers.cpu(), torch.tensor([FIRST, CHANNEL, CHANNEL + 1])])
        found = {"second.words.weight": state["embeddings.word_embeddings.weight"][numbers]}
        found["second.positions"] = state["embeddings.position_embeddings.weight"][:194] + state["embeddings.token_type_embeddings.weight"][0]
        for part in ("weight", "bias"):
            found[f"second.norm.{part}"] = state[f"embeddings.LayerNorm.{part}"]
            found[f"second.pooler.{part}"] = getattr(self.pooler, part).float().cpu()
            found[f"second.labels.{part}"] = getattr(self.labels, part).float().cpu()
        for name, value in state.items():
            if name.startswith("encoder.layer."):
                found["second." + name.removeprefix("encoder.")] = value
        return {name: value.numpy() for name, value in found.items()}


def packed(tensors: dict) -> dict:
    """Eight bits for what is large, with a scale for each row."""
    found = {}
    for name, value in tensors.items():
        if value.ndim == 2 and value.shape[0] > 6 and name.endswith(".weight"):
            found[name], found[name.removesuffix("weight") + "scale"] = quantise(value)
        else:
            found[name] = value.astype("f4")
    return found


def judged(judge, data: Set) -> dict:
    pool, rows = held_out(data)
    return figures(text_raw(logits_of(judge, pool).cpu().numpy(), pool.pool, rows), data, rows)


def quick(model):
    """The model as a judge, in bfloat16."""
    def judge(ids, inside, channel):
        model.eval()
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return model(ids, inside, channel)

    return judge


def optimiser_of(body: list, head: list, top: float, decay: float = 0.01):
    groups = [{"params": body, "top": top}, {"params": head, "top": 5e-4}]
    return torch.optim.AdamW(groups, lr=top, weight_decay=decay, fused=DEVICE.type == "cuda")


def step(model, optimiser, loss, done: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = group["top"] * rate_at(done)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def logits_with_words_hidden(model, ids, inside, channel, unknown: int):
    """Some words are hidden, so that texts are not learned by heart."""
    hidden = (torch.rand(ids.shape, device=DEVICE) < 0.06) & inside
    with torch.autocast(DEVICE.type, torch.bfloat16):
        return model(torch.where(hidden, unknown, ids), inside, channel).float()


def teach(folder: Path, seed: int, epochs: int) -> None:
    torch.manual_seed(seed)
    data, drawn = read(folder)
    model, unknown, random = Teacher(folder).to(DEVICE).train(), Asset().unknown, np.random.default_rng(seed)
    optimiser, average = optimiser_of(list(model.body.parameters()), list(model.head.parameters()), 3e-5), Average(model, 0.998)
    plan = [(there, *some) for epoch in range(epochs) for there in [drawn[(epoch + seed) % POOLS]] for some in there.batches(256, random)]
    began = time.time()
    for number, (there, some, count) in enumerate(plan):
        logits = logits_with_words_hidden(model, *there.windows(some), unknown)
        step(model, optimiser, loss_of(logits, there, some, count, 0.005, 1.0), number / len(plan))
        average.follow()
        if number % 200 == 0:
            print(f"teacher {seed}: {number}/{len(plan)}, {time.time() - began:.0f} s", flush=True)
    average.take()
    result = judged(quick(model), data)
    print(f"teacher {seed}, {time.time() - began:.0f} s: held-out recall {result['mean recall']}", flush=True)
    (folder / f"teacher-{seed}.json").write_text(json.dumps(result))
    say(quick(model), folder, f"teacher-{seed}", drawn)
    print(f"teacher {seed} has said it all, {time.time() - began:.0f} s", flush=True)


def distil(folder: Path, steps: int, spliced_share: float = 0.4) -> None:
    """The encoder learns from labels and from what all teachers say, also of windows that nobody has written."""
    torch.manual_seed(7)
    lessons, unknown = Lessons(folder, "teacher-*"), Asset().unknown
    model = Encoder(folder / "minilm.npz").to(DEVICE).train()
    optimiser, average = optimiser_of(list(model.bert.parameters()), model.head_parameters(), 1.2e-4), Average(model, 0.998)
    began = time.time()
    for number, (ids, inside, channel, said, plain) in zip(range(steps), lessons.batches(384, spliced_share, np.random.default_rng(7))):
        logits = logits_with_words_hidden(model, ids, inside, channel, unknown)
        loss = loss_of(logits, *plain, 0.005, 2.0, said, 0.7) if plain else kept_to(logits, said).mean()
        step(model, optimiser, loss, number / steps)
        average.follow()
        if number % 500 == 0:
            print(f"encoder: {number}/{steps}, loss {loss.item():.4f}, {time.time() - began:.0f} s", flush=True)
    average.take()
    result = {"steps": steps, **judged(quick(model), lessons.data)}
    print(f"encoder, {time.time() - began:.0f} s: held-out recall {result['mean recall']}", flush=True)
    (folder / "encoder.json").write_text(json.dumps(result))
    tensors = packed(model.eval().tensors())
    np.savez(folder / "encoder.npz", **tensors)
    # As it ships, with eight bits.
    say(Second(tensors, torch.bfloat16).logits, folder, "encoder", lessons.pools["drawn"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--teach", type=int)
    options.add_argument("--epochs", type=int, default=4)
    options.add_argument("--distil", action="store_true")
    options.add_argument("--steps", type=int, default=4000)
    given = options.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    if given.teach is not None:
        teach(given.folder, given.teach, given.epochs)
    if given.distil:
        distil(given.folder, given.steps)


if __name__ == "__main__":
    main()
