"""The reference network with PyTorch, for many texts at once. The numbers that ship are the reference's."""

import numpy as np
import torch
import torch.nn.functional as F

from reference import Classifier, bigram_slots


class Fast(Classifier):
    def __init__(self, config: dict, tensors: dict):
        super().__init__(config, tensors)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        there = lambda value: torch.from_numpy(np.array(value)).to(self.device)  # noqa: E731
        self.t = {name: there(value) for name, value in tensors.items() if value.dtype != np.int8}
        self.tables = there(self.pieces), there(self.bigrams)

    @torch.no_grad()
    def logits(self, batch: list[list[int]], channel) -> np.ndarray:
        c, t = self.config, self.t
        lengths = np.array([len(one) for one in batch])
        most = int(lengths.max())
        ids = np.zeros((len(batch), most), np.int64)
        for row, one in zip(ids, batch):
            row[: len(one)] = one
        slots = bigram_slots(ids, c["pieces"], c["bigrams"])
        there = lambda value: torch.from_numpy(np.array(value)).to(self.device)  # noqa: E731
        inside = there(np.arange(most)[None, :] < lengths[:, None])[:, :, None]
        channels = there(np.broadcast_to(np.asarray(channel), len(batch)).astype(np.int64))
        x = self.tables[0][there(ids)] + self.tables[1][there(slots)] + t["channel.weight"][channels][:, None]
        reach = (c["kernel"] - 1) // 2
        for i, dilation in enumerate(c["dilations"]):
            part = f"blocks.{i}."
            y = F.layer_norm(x, (c["dim"],), t[part + "norm.weight"], t[part + "norm.bias"], 1e-5) * inside
            y = F.pad(y, (0, 0, reach * dilation, reach * dilation))
            conv = t[part + "conv.bias"] + sum(t[part + "conv.weight"][k] * y[:, k * dilation : k * dilation + most] for k in range(c["kernel"]))
            a, b = F.linear(conv, t[part + "gate.weight"], t[part + "gate.bias"]).chunk(2, -1)
            x = x + a * torch.sigmoid(b)
        weights = (x @ t["pool.query"].T).masked_fill(~inside, -1e30).softmax(1)
        f = torch.cat([torch.einsum("nth,ntd->nhd", weights, x).flatten(1), x.masked_fill(~inside, -1e30).amax(1)], -1)
        hidden = F.relu(F.linear(f, t["head.0.weight"], t["head.0.bias"]))
        return F.linear(hidden, t["head.1.weight"], t["head.1.bias"]).cpu().numpy()
