#!/usr/bin/env python3
"""Trains the second look: teachers, then one encoder that learns from all of them. Needs a GPU and PyTorch.

    encoder.py FOLDER --teach SEED [--epochs N]     one teacher; leaves its weights beside the set
    encoder.py FOLDER --distil [--steps N]          the encoder, from every teacher in FOLDER; writes FOLDER/encoder.npz

FOLDER is what pack.py writes. A teacher is all-MiniLM-L6-v2 with a head, fine-tuned. The encoder is the same network with a
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

from reference import quantise
from train import DEVICE, OnDevice, kept_to, logits_of, loss_of, pools, rate_at, spliced, text_raw
from windows import Set, all_windows, batches, figures
from wordpiece import Asset

POOLS = 4
# BERT's numbers of what a window begins with: [CLS], and [unused0] for a user or [unused1] for a tool.
FIRST, CHANNEL = 101, 1


class MiniLM(nn.Module):
    """all-MiniLM-L6-v2 over our pieces, told who speaks."""

    def __init__(self, path: Path):
        super().__init__()
        from transformers import BertConfig, BertModel

        data = np.load(path)
        state = {}
        for name in data.files:
            if name.endswith("|q"):
                state[name[:-2]] = torch.tensor(data[name].astype("f4") * data[name[:-2] + "|s"][:, None])
            elif not name.endswith("|s") and name != "numbers":
                state[name] = torch.tensor(data[name])
        config = BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
        self.bert = BertModel(config, add_pooling_layer=False)
        missing = self.bert.load_state_dict(state, strict=False)
        print("missing of MiniLM:", missing.missing_keys, flush=True)
        self.register_buffer("numbers", torch.tensor(data["numbers"]).long())

    def rows(self, ids, inside, channel):
        front = torch.stack([torch.full_like(channel, FIRST), channel + CHANNEL], 1)
        ids = torch.cat([front, torch.where(inside, self.numbers[ids], 0)], 1)
        mask = F.pad(inside, (2, 0), value=True)
        return self.bert(input_ids=ids, attention_mask=mask.long()).last_hidden_state, mask


class Teacher(MiniLM):
    def __init__(self, path: Path):
        super().__init__(path)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(768, 384), nn.GELU(), nn.Dropout(0.1), nn.Linear(384, 6))

    def forward(self, ids, inside, channel):
        rows, mask = self.rows(ids, inside, channel)
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


def on_device(folder: Path) -> tuple[Set, torch.Tensor, list[OnDevice]]:
    data = Set(folder / "set.npz")
    tokens = torch.from_numpy(data.tokens.astype(np.int32)).to(DEVICE)
    return data, tokens, [OnDevice(data, pool, tokens) for pool in pools(data)]


def judged(model, data: Set, tokens) -> dict:
    held = np.flatnonzero(data.held == 1)
    pool = all_windows(data, held)
    return figures(text_raw(logits_of(model, OnDevice(data, pool, tokens), True), pool, held), data, held)


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
    data, tokens, drawn = on_device(folder)
    model, unknown, random = Teacher(folder / "teacher.npz").to(DEVICE).train(), Asset().unknown, np.random.default_rng(seed)
    optimiser = optimiser_of(list(model.bert.parameters()), list(model.head.parameters()), 6e-5)
    plan = [(there, *some) for epoch in range(epochs) for there in [drawn[(epoch + seed) % POOLS]] for some in batches(there.pool, 256, random)]
    began = time.time()
    for number, (there, some, count) in enumerate(plan):
        ids, inside, channel, chosen = there.windows(some)
        logits = logits_with_words_hidden(model, ids, inside, channel, unknown)
        step(model, optimiser, loss_of(logits, there, chosen, count, 0.005, 1.0), number / len(plan))
        if number % 500 == 0:
            print(f"teacher {seed}: {number}/{len(plan)}, {time.time() - began:.0f} s", flush=True)
    result = judged(model, data, tokens)
    print(f"teacher {seed}, {time.time() - began:.0f} s: held-out recall {result['mean recall']}", flush=True)
    (folder / f"teacher-{seed}.json").write_text(json.dumps(result))
    torch.save({name: value.half() if value.is_floating_point() else value for name, value in model.state_dict().items()}, folder / f"teacher-{seed}.pt")


def distil(folder: Path, steps: int, mixed_share: float = 0.4) -> None:
    """The encoder learns from labels and from what all teachers say, also of windows that nobody has written."""
    torch.manual_seed(7)
    data, tokens, drawn = on_device(folder)
    random, unknown, teachers = np.random.default_rng(7), Asset().unknown, []
    for path in sorted(folder.glob("teacher-*.pt")):
        teacher = Teacher(folder / "teacher.npz")
        teacher.load_state_dict(torch.load(path))
        teachers.append(teacher.to(DEVICE).bfloat16().eval())
    model = Encoder(folder / "teacher.npz").to(DEVICE).train()
    optimiser = optimiser_of(list(model.bert.parameters()), model.head_parameters(), 1.2e-4)
    average = [p.detach().clone() for p in model.parameters()]
    windows = ((there, *some) for epoch in range(10**6) for there in [drawn[epoch % POOLS]] for some in batches(there.pool, 384, random))
    began = time.time()
    for number, (there, some, count) in zip(range(steps), windows):
        ids, inside, channel, chosen = there.windows(some)
        mixed = random.random() < mixed_share
        if mixed:
            ids, inside = spliced(ids, inside)
        with torch.no_grad():
            said = torch.stack([teacher(ids, inside, channel).float() for teacher in teachers]).mean(0)
        logits = logits_with_words_hidden(model, ids, inside, channel, unknown)
        loss = kept_to(logits, said).mean() if mixed else loss_of(logits, there, chosen, count, 0.005, 2.0, said, 0.7)
        step(model, optimiser, loss, number / steps)
        with torch.no_grad():
            torch._foreach_lerp_(average, list(model.parameters()), 1 - min(0.998, (number + 1) / (number + 10)))
        if number % 500 == 0:
            print(f"encoder: {number}/{steps}, loss {loss.item():.4f}, {time.time() - began:.0f} s", flush=True)
    with torch.no_grad():
        for p, mean in zip(model.parameters(), average):
            p.copy_(mean)
    result = {"steps": steps, **judged(model.eval(), data, tokens)}
    print(f"encoder, {time.time() - began:.0f} s: held-out recall {result['mean recall']}", flush=True)
    (folder / "encoder.json").write_text(json.dumps(result))
    np.savez(folder / "encoder.npz", **packed(model.tensors()))


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
