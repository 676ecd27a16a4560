#!/usr/bin/env python3
"""A Portcullis sidecar in Python: one deep rule, judged by a Hugging Face pipeline or a function of yours.

    python sidecar.py --rule hf-jailbreak --model protectai/deberta-v3-base-prompt-injection-v2 --label INJECTION
    python sidecar.py --rule my-rule --pipeline my_module:classify --label BAD
"""

import argparse
import asyncio
import concurrent.futures
import hmac
import importlib
import json
import logging
import pathlib
import signal
import sys
import time

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

HERE = pathlib.Path(__file__).resolve().parent
PROTOS = HERE.parent.parent / "crates" / "portcullis-runtime" / "proto"

# Models read 512 tokens. A window has fewer, so that what --augment puts before it has room.
MODEL_TOKENS = 512
WINDOW_TOKENS = 448
OVERLAP_TOKENS = 64


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    judge = parser.add_mutually_exclusive_group(required=True)
    judge.add_argument("--model", help="a text-classification model: its name on the Hugging Face Hub, or a folder")
    judge.add_argument("--pipeline", metavar="MODULE:FUNCTION", help='takes a text, returns [{"label": ..., "score": ...}]')
    parser.add_argument("--rule", default="hf-jailbreak", help="the name of the rule")
    parser.add_argument("--label", default="INJECTION", help="the label that stops the run")
    parser.add_argument("--threshold", type=float, default=0.85, help="from which score on")
    parser.add_argument("--events", default="llm_before", help="what it judges, separated by commas; * for everything")
    parser.add_argument("--min-chars", type=int, default=10, help="shorter texts are not judged")
    parser.add_argument("--window-chars", type=int, default=1000, help="how much text --pipeline is given at a time")
    parser.add_argument("--max-windows", type=int, default=64, help="an event with more text than that is not judged")
    parser.add_argument("--augment", action="store_true", help="put what is known of the run before the text")
    parser.add_argument("--device", type=int, default=-1, help="-1 for the CPU, otherwise the number of the GPU")
    parser.add_argument("--workers", type=int, default=2, help="texts judged at once")
    parser.add_argument("--queue", type=int, default=256, help="requests under way; what is more is turned away")
    parser.add_argument("--max-message-bytes", type=int, default=16 << 20, help="the largest request that is read")
    parser.add_argument("--drain", type=float, default=10.0, help="seconds for what is under way at shutdown")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=50051, help="0 for any that is free")
    parser.add_argument("--token-file", type=pathlib.Path, help="the secret that gateways must show")
    parser.add_argument("--tls-cert", type=pathlib.Path, help="the certificate, as PEM")
    parser.add_argument("--tls-key", type=pathlib.Path, help="its private key, as PEM")
    parser.add_argument("--tls-client-ca", type=pathlib.Path, help="who signs the certificates of gateways, as PEM")
    parser.add_argument("--no-stream", action="store_true", help="one call for each request only")
    parser.add_argument("--protos", type=pathlib.Path, default=PROTOS, help="where portcullis/deep/v1/deep.proto is")
    options = parser.parse_args()
    if (options.tls_cert is None) != (options.tls_key is None):
        parser.error("--tls-cert and --tls-key belong together")
    if options.window_chars < 10 or options.max_windows < 1:
        parser.error("--window-chars is 10 at least, and --max-windows 1")
    return options


OPTIONS = arguments()
# The messages and services are made from the .proto here, at start: nothing generated is kept.
sys.path.insert(0, str(OPTIONS.protos))
wire, services = grpc.protos_and_services("portcullis/deep/v1/deep.proto")


class Unusable(Exception):
    """The rule cannot be run like this, and why."""


class NotAsked(Exception):
    """The event is not one that the rule can judge."""


class Rule:
    """RFC-001 section 8.1: text in, a decision or nothing out."""

    def __init__(self, options):
        self.options = options
        self.name = options.model or options.pipeline
        self.classify = None
        self.windows = None
        self.warned = False

    def load(self):
        if self.options.pipeline:
            module, _, function = self.options.pipeline.partition(":")
            judge = classify = getattr(importlib.import_module(module), function)
        else:
            from transformers import pipeline

            judge = pipeline("text-classification", model=self.options.model, device=self.options.device)

            def classify(text):
                return judge(text, truncation=True, max_length=MODEL_TOKENS, top_k=None)

        self.check_label(judge)
        tokenizer = getattr(judge, "tokenizer", None)
        if tokenizer is None:
            self.windows = lambda text: by_characters(text, self.options.window_chars)
        elif tokenizer.is_fast:
            self.windows = lambda text: by_tokens(text, tokenizer)
        else:
            raise Unusable(f"{self.name}: its tokenizer does not say where tokens are; it takes a fast one")
        self.classify = classify

    def check_label(self, judge):
        """A label that the model never says would find nothing for ever."""
        config = getattr(getattr(judge, "model", None), "config", None)
        known = list((getattr(config, "id2label", None) or {}).values())
        if known and self.options.label not in known:
            raise Unusable(f"--label: {self.name} has no {self.options.label!r}, only {', '.join(map(repr, known))}")

    def judge(self, request, until):
        """Runs in a thread of the pool. The highest score of any window counts."""
        texts = [text for text in texts_of(request.event) if len(text) >= self.options.min_chars]
        windows = [window for text in texts for window in self.windows(text)]
        if len(windows) > self.options.max_windows:
            raise NotAsked(f"it has {len(windows)} windows of text, and {self.options.max_windows} are judged")
        if self.options.augment and windows:
            snapshot = json.loads(request.snapshot_json)
            windows = [augmented(window, snapshot) for window in windows]
        score = 0.0
        for window in windows:
            if time.monotonic() >= until:
                raise TimeoutError
            score = max(score, self.score(window))
        if not windows or score < self.options.threshold:
            return None
        found = {"model": self.name, "label": self.options.label, "score": score, "intent": "jb_override"}
        return wire.Decision(
            action=wire.ACTION_STOP,
            reason=f"Prompt injection detected (score: {score:.3f})",
            severity=wire.SEVERITY_CRITICAL,
            confidence=score,
            effects=["flag_trajectory", "increment_strike", "emit_alert"],
            classifier_result_json=json.dumps(found),
            stop=wire.Stop(error_code="JAILBREAK_ML_DETECTED", user_message="I can't process that request."),
        )


    def score(self, text):
        scores = {said["label"]: float(said["score"]) for said in self.classify(text)}
        if self.options.label not in scores and not self.warned:
            self.warned = True
            logging.warning("%s says nothing about --label %s, only %s", self.name, self.options.label, sorted(scores))
        return scores.get(self.options.label, 0.0)


def texts_of(event):
    """All of an event that a model can read. What it has none of has not been judged, which is not the same as clear."""
    texts = []
    if event.HasField("text_content"):
        texts.append(event.text_content)
    if event.HasField("tool_args_json"):
        texts.append(readable(json.loads(event.tool_args_json)))
    payload = json.loads(event.payload_json or "{}")
    if payload.get("result") is not None:
        texts.append(readable(payload["result"]))
    if not texts:
        raise NotAsked(f"{event.event_type} has no text, no tool arguments and no result")
    return texts


def readable(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def by_characters(text, size):
    """Windows that overlap by a fifth, so that nothing is cut in all of them."""
    step = size - size // 5
    return [text[start : start + size] for start in range(0, max(len(text) - size // 5, 1), step)]


def by_tokens(text, tokenizer):
    """The same, as the model reads it."""
    encoded = tokenizer(
        text,
        add_special_tokens=False,
        truncation=True,
        max_length=min(WINDOW_TOKENS, tokenizer.model_max_length - OVERLAP_TOKENS),
        stride=OVERLAP_TOKENS,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    spans = [(offsets[0][0], offsets[-1][1]) for offsets in encoded["offset_mapping"] if offsets]
    return [text[start:end] for start, end in spans]


def augmented(text, snapshot):
    features = []
    if snapshot["max_tool_risk"] in ("high", "critical"):
        features.append("[HIGH_RISK_TOOLS_AVAILABLE]")
    if snapshot["requests_system_info"]:
        features.append("[REQUESTS_SYSTEM_INFO]")
    if snapshot["previous_violations"] > 0:
        features.append(f"[PRIOR_VIOLATIONS:{snapshot['previous_violations']}]")
    return " ".join([*features, text])


class Sidecar(services.GuardSidecarServicer):
    def __init__(self, rule, options):
        self.rule = rule
        self.options = options
        self.pool = concurrent.futures.ThreadPoolExecutor(options.workers)
        self.under_way = set()
        self.closing = asyncio.Event()

    async def Describe(self, request, context):
        rule = wire.Rule(
            id=self.options.rule,
            version="1.0.0",
            events=self.options.events.split(","),
            ready=self.rule.classify is not None and not self.closing.is_set(),
        )
        return wire.DescribeResponse(rules=[rule], max_request_bytes=self.options.max_message_bytes)

    async def Evaluate(self, request, context):
        if self.closing.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the sidecar is shutting down")
        response = await self.begin(request)
        if response.overloaded:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{len(self.under_way)} requests are under way")
        return response

    async def EvaluateStream(self, requests, context):
        if self.options.no_stream:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "one call for each request, please")
        writing = asyncio.Lock()
        mine = set()

        async def answer(request):
            response = await self.begin(request)
            async with writing:
                await context.write(response)

        try:
            async for request in self.until_closing(context):
                task = asyncio.create_task(answer(request))
                mine.add(task)
                task.add_done_callback(mine.discard)
            await asyncio.gather(*mine, return_exceptions=True)
        finally:
            # Without the connection nobody is left to tell.
            for task in mine:
                task.cancel()

    async def until_closing(self, context):
        closing = asyncio.create_task(self.closing.wait())
        try:
            while True:
                reading = asyncio.ensure_future(context.read())
                await asyncio.wait({reading, closing}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    return
                request = reading.result()
                if request is grpc.aio.EOF:
                    return
                yield request
        finally:
            closing.cancel()

    def begin(self, request):
        """The response, or that there is no room for it."""
        if len(self.under_way) >= self.options.queue:
            full = asyncio.get_running_loop().create_future()
            full.set_result(wire.EvaluateResponse(correlation_id=request.correlation_id, overloaded=True))
            return full
        task = asyncio.create_task(self.respond(request))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task

    async def respond(self, request):
        response = wire.EvaluateResponse(correlation_id=request.correlation_id, run_id=request.event.run_id)
        for rule in request.rules:
            answer = response.answers.add(rule_id=rule)
            if rule != self.options.rule or self.rule.classify is None:
                answer.unavailable.SetInParent()
                continue
            limit = request.ttl_ms / 1000 if request.ttl_ms else None
            until = time.monotonic() + limit if limit else float("inf")
            judging = asyncio.get_running_loop().run_in_executor(self.pool, self.rule.judge, request, until)
            try:
                decision = await asyncio.wait_for(judging, limit)
            except TimeoutError as error:
                answer.no_answer = str(error) or f"given up after {request.ttl_ms} ms"
            except NotAsked as error:
                answer.not_asked = str(error)
            except Exception as error:  # Whatever a model raises is this request's failure and nobody else's.
                answer.failed = f"{type(error).__name__}: {error}"
            else:
                if decision is None:
                    answer.clear.SetInParent()
                else:
                    answer.decided.CopyFrom(decision)
        return response

    async def drain(self):
        self.closing.set()
        if self.under_way:
            await asyncio.wait(self.under_way, timeout=self.options.drain)


class CheckToken(grpc.aio.ServerInterceptor):
    """Lets nobody ask without the token. Health stays open."""

    def __init__(self, token):
        self.expected = b"Bearer " + token

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        shown = dict(details.invocation_metadata).get("authorization", "")
        known = hmac.compare_digest(shown.encode(), self.expected)
        if handler is None or known or not details.method.startswith("/portcullis."):
            return handler

        async def refuse(request, context):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or not the sidecar's")

        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(refuse)
        return grpc.unary_unary_rpc_method_handler(refuse)


def credentials(options):
    client_ca = options.tls_client_ca and options.tls_client_ca.read_bytes()
    pair = (options.tls_key.read_bytes(), options.tls_cert.read_bytes())
    return grpc.ssl_server_credentials([pair], client_ca, require_client_auth=client_ca is not None)


async def main(options):
    rule = Rule(options)
    sidecar = Sidecar(rule, options)
    interceptors = [CheckToken(options.token_file.read_bytes().strip())] if options.token_file else []
    server = grpc.aio.server(
        interceptors=interceptors,
        options=[
            ("grpc.max_receive_message_length", options.max_message_bytes),
            ("grpc.so_reuseport", 0),
            # Gateways ask for a sign of life every few seconds.
            ("grpc.http2.min_ping_interval_without_data_ms", 500),
            ("grpc.keepalive_permit_without_calls", 1),
        ],
    )
    services.add_GuardSidecarServicer_to_server(sidecar, server)
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    await status.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    address = f"{options.host}:{options.port}"
    if options.tls_cert:
        port = server.add_secure_port(address, credentials(options))
    else:
        port = server.add_insecure_port(address)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start()
    print(f"listening on {options.host}:{port}", flush=True)
    try:
        await asyncio.to_thread(rule.load)
    except Unusable as error:
        await server.stop(grace=0)
        sys.exit(str(error))
    await status.set("", health_pb2.HealthCheckResponse.SERVING)
    print(f"{options.rule} is ready", flush=True)
    await stop.wait()
    await status.enter_graceful_shutdown()
    await sidecar.drain()
    await server.stop(grace=1)
    sidecar.pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    asyncio.run(main(OPTIONS))
