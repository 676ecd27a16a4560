#!/usr/bin/env python3
"""Measure PenguiFlow's guardrail gateway on given events, as the baseline beside Portcullis.

Usage:
    pip install penguiflow
    python penguiflow_latency.py [--seconds 1.0] < events.ndjson

stdin, one object a line, fields as in RFC-001 section 3.4:
    {"name": "chunk-20B", "context": {"run_id": "r1"},
     "event": {"event_type": "llm_stream_chunk", "run_id": "r1", "text_content": "hello"}}
stdout, one object a line, each written as soon as it is known (so a caller may feed and read in turn):
    {"penguiflow": "3.11.2", "python": "3.11.7"}
    {"name": "chunk-20B", "p50_us": 40.1, "p99_us": 61.3, "n": 20000, "action": "ALLOW"}

The gateway is that of RFC-001 section 11.1: built-in rules only, enforce mode, in-memory inbox.
Only `await gateway.evaluate(ctx, event)` is timed, one call at a time in one event loop. Between
calls, untimed: a fresh context is built, the task that the inbox left running is let finish (else
the next call would pay for it), and every so often the inbox's kept responses are drained.

Exit status: 0 done, 2 bad input, 3 PenguiFlow is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import sys
from array import array
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter_ns
from typing import Any, NamedTuple

IMPORT_ERROR: str | None = None
try:
    from penguiflow.planner.guardrails import (
        AsyncRuleEvaluator,
        GatewayConfig,
        GuardrailContext,
        GuardrailEvent,
        GuardrailGateway,
        InjectionPatternRule,
        RuleRegistry,
        SecretRedactionRule,
        ToolAllowlistRule,
    )
    from penguiflow.steering.guard_inbox import InMemoryGuardInbox

    PENGUIFLOW_VERSION = version("penguiflow")
except (ImportError, PackageNotFoundError) as exc:
    IMPORT_ERROR = str(exc)

MIN_ITERATIONS = 200
MIN_WARMUP_ITERATIONS = 20
WARMUP_SHARE = 0.2  # of --seconds
DRAIN_EVERY = 256

NULLABLE_STR = (str, type(None))
CONTEXT_TYPES: dict[str, tuple[type, ...]] = {
    "run_id": (str,),
    "tenant_id": NULLABLE_STR,
    "persona_id": NULLABLE_STR,
    "tool_context": (dict,),
    "strike_counts": (dict,),
    "policy_config": (dict,),
}
EVENT_TYPES: dict[str, tuple[type, ...]] = {
    "event_type": (str,),
    "run_id": (str,),
    "text_content": NULLABLE_STR,
    "tool_name": NULLABLE_STR,
    "tool_args": (dict, type(None)),
    "payload": (dict,),
    "timestamp": (int, float),
}


class BadInput(Exception):
    """An input line that cannot be measured."""


class Case(NamedTuple):
    name: str
    context: dict[str, Any]
    event: dict[str, Any]


def check_fields(
    what: str, value: Any, types: dict[str, tuple[type, ...]], required: tuple[str, ...]
) -> dict[str, Any]:
    """Return `value` if it is an object with known fields of the right types, else raise BadInput."""
    if not isinstance(value, dict):
        raise BadInput(f'"{what}" must be an object')
    for key in required:
        if key not in value:
            raise BadInput(f'"{what}" lacks "{key}"')
    for key, item in value.items():
        if key not in types:
            raise BadInput(f'"{what}" has an unknown field "{key}" (known: {", ".join(types)})')
        if not isinstance(item, types[key]) or isinstance(item, bool):
            wanted = " or ".join("null" if t is type(None) else t.__name__ for t in types[key])
            raise BadInput(f'"{what}.{key}" must be {wanted}, not {json.dumps(item)[:40]}')
    return value


def parse_case(line: bytes) -> Case:
    """Read one NDJSON line."""
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"not JSON in UTF-8: {exc}") from exc
    if not isinstance(value, dict) or set(value) != {"name", "context", "event"}:
        raise BadInput('must be an object with exactly "name", "context" and "event"')
    if not isinstance(value["name"], str):
        raise BadInput('"name" must be a string')
    context = check_fields("context", value["context"], CONTEXT_TYPES, ("run_id",))
    strikes = context.get("strike_counts", {})
    if any(not isinstance(count, int) or isinstance(count, bool) for count in strikes.values()):
        raise BadInput('"context.strike_counts" must hold whole numbers')
    event = check_fields("event", value["event"], EVENT_TYPES, ("event_type", "run_id"))
    return Case(value["name"], context, event)


def build_gateway() -> tuple[GuardrailGateway, InMemoryGuardInbox]:
    """The minimal set-up of RFC-001 section 11.1, with the denied tools of its default pack."""
    registry = RuleRegistry()
    registry.register(ToolAllowlistRule(denied_tools=frozenset({"admin.execute", "filesystem.delete"})))
    registry.register(SecretRedactionRule())
    registry.register(InjectionPatternRule())
    inbox = InMemoryGuardInbox(AsyncRuleEvaluator(registry))
    gateway = GuardrailGateway(registry=registry, guard_inbox=inbox, config=GatewayConfig(mode="enforce"))
    return gateway, inbox


async def sample(
    gateway: GuardrailGateway, inbox: InMemoryGuardInbox, case: Case, seconds: float, at_least: int
) -> tuple[array[int], Counter[str]]:
    """Call the gateway for about `seconds`; return each call's nanoseconds and the actions seen."""
    event = GuardrailEvent(**case.event)
    strikes: dict[str, int] = case.context.get("strike_counts", {})
    times = array("q")  # flat, so that a long run holds little memory
    actions: Counter[str] = Counter()
    deadline = perf_counter_ns() + int(seconds * 1e9)
    while len(times) < at_least or perf_counter_ns() < deadline:
        ctx = GuardrailContext(**{**case.context, "strike_counts": dict(strikes)})
        start = perf_counter_ns()
        decision = await gateway.evaluate(ctx, event)
        times.append(perf_counter_ns() - start)
        actions[decision.action.value] += 1
        await asyncio.sleep(0)
        if len(times) % DRAIN_EVERY == 0:
            inbox.drain_responses(case.context["run_id"])
    inbox.drain_responses(case.context["run_id"])
    return times, actions


def percentile_us(ordered: list[int], share: float) -> float:
    """Nearest-rank percentile of sorted nanoseconds, in microseconds."""
    return round(ordered[math.ceil(share * len(ordered)) - 1] / 1000, 3)


async def measure(gateway: GuardrailGateway, inbox: InMemoryGuardInbox, case: Case, seconds: float) -> dict[str, Any]:
    """Warm up, measure one case, and return its output line."""
    try:
        await sample(gateway, inbox, case, seconds * WARMUP_SHARE, MIN_WARMUP_ITERATIONS)
        times, actions = await sample(gateway, inbox, case, seconds, MIN_ITERATIONS)
    except Exception as exc:
        raise BadInput(f"the gateway cannot evaluate it: {type(exc).__name__}: {exc}") from exc
    if len(actions) > 1:
        print(f"warning: {case.name}: mixed actions {dict(actions)}; the commonest is reported", file=sys.stderr)
    ordered = sorted(times)
    return {
        "name": case.name,
        "p50_us": percentile_us(ordered, 0.50),
        "p99_us": percentile_us(ordered, 0.99),
        "n": len(ordered),
        "action": actions.most_common(1)[0][0],
    }


async def run(seconds: float) -> None:
    """Answer stdin line by line."""
    gateway, inbox = build_gateway()
    seen = 0
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        seen += 1
        try:
            result = await measure(gateway, inbox, parse_case(line), seconds)
        except BadInput as exc:
            raise BadInput(f"stdin line {number}: {exc}") from exc
        print(json.dumps(result), flush=True)
    if not seen:
        raise BadInput("stdin holds no lines")


def positive_seconds(text: str) -> float:
    """argparse type of --seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=positive_seconds, default=1.0, help="time for each line (default: 1.0)")
    args = parser.parse_args()
    if IMPORT_ERROR is not None:
        print(f"error: PenguiFlow's guardrails cannot be imported ({IMPORT_ERROR}).", file=sys.stderr)
        print("Install it for this Python: python -m pip install penguiflow", file=sys.stderr)
        return 3
    print(json.dumps({"penguiflow": PENGUIFLOW_VERSION, "python": platform.python_version()}), flush=True)
    try:
        asyncio.run(run(args.seconds), debug=False)
    except BadInput as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
