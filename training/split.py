"""Which texts are held out: whole groups, never single texts of one."""

import hashlib

import numpy as np

from overlap import characters, normalise

SHARE = 0.12


def number(key: str) -> float:
    """A number from 0 to 1 that only the key decides."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64


def is_held(key: str, share: float = SHARE) -> bool:
    return number(f"held out:{key}") < share


def signature(text: str):
    """MinHash: 64 numbers, equal in as many places as two texts are alike."""
    runs = characters(normalise(text[:3000]), 5)
    if len(runs) == 0:
        return None
    with np.errstate(over="ignore"):
        return ((runs[:, None] * FACTORS[None, :]) >> np.uint64(16)).min(axis=0)


FACTORS = np.random.default_rng(7).integers(1, 2**63, 64, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
# From what share of their runs on two texts are near duplicates.
ALIKE = 0.4


def clusters(texts: list[str], workers) -> list[int]:
    """The same number for near duplicates. Sixteen bands of four name the pairs to compare."""
    parent = list(range(len(texts)))

    def top(one: int) -> int:
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    buckets, signatures = {}, {}
    for index, least in enumerate(workers.map(signature, texts, chunksize=200)):
        if least is None:
            continue
        signatures[index] = least
        for band in range(16):
            others = buckets.setdefault((band, least[4 * band : 4 * band + 4].tobytes()), [])
            for other in others:
                if top(other) == top(index):
                    break
                if (signatures[other] == least).mean() >= ALIKE:
                    parent[top(index)] = top(other)
                    break
            else:
                # A few of each sort are enough to find the next one by.
                if len(others) < 8:
                    others.append(index)
    return [top(index) for index in range(len(texts))]
