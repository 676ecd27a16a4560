"""CSTP as its documents write it: F001's server and F003's method in FastAPI and pydantic.

The original is not published, so this is its Python put together from the documents: models, token check, handler,
audit line. Guardrails are five in the older form, evaluated one after the other. `scripts/bench-server` measures
our server beside it.

    CSTP_TOKEN=... CSTP_AUDIT=audit.ndjson python scripts/cstp_reference.py PORT [--fast]

`--fast` takes uvloop and httptools, which F001 does not ask for.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional

import uvicorn
import yaml
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, Field, ValidationError

AGENT = "cognition-engines"
VERSION = "0.7.0"
TOKENS = {os.environ["CSTP_TOKEN"]: "emerson"}
AUDIT = os.environ["CSTP_AUDIT"]
STARTED = time.time()

GUARDRAILS = yaml.safe_load(
    """
- id: no-production-without-review
  name: Production Requires Review
  condition_affectsProduction: true
  requires_codeReviewCompleted: true
  action: block
  message: Production changes require completed code review
  suggestion: Complete code review before deploying
- id: no-high-stakes-low-confidence
  name: High Stakes Need Confidence
  condition_stakes: high
  condition_confidence: "< 0.5"
  action: block
  message: Confidence is too low for these stakes
- id: no-destructive-without-backup
  name: Destruction Requires a Backup
  condition_destructive: true
  requires_backupVerified: true
  action: block
  message: No backup has been verified
- id: no-data-leaving-without-approval
  name: Data Stays Unless Approved
  condition_dataLeavesOrganisation: true
  requires_approved: true
  action: block
  message: Nobody has approved it
- id: prefer-staged-rollout
  name: Staged Rollout Preferred
  condition_affectsProduction: true
  requires_ciPassing: true
  action: warn
  message: Consider staged rollout for production changes
  suggestion: Deploy to 10% of traffic first
"""
)


# a2a/models (F001, F003)


class JsonRpcRequest(BaseModel):
    jsonrpc: str
    method: str
    id: Any = None
    params: Dict[str, Any] = Field(default_factory=dict)


class ActionContext(BaseModel):
    description: str = Field(..., min_length=1)
    category: Optional[str] = None
    stakes: str = "medium"
    confidence: Optional[float] = Field(None, ge=0.0, le=1.0)
    context: Dict[str, Any] = Field(default_factory=dict)


class AgentInfo(BaseModel):
    id: Optional[str] = None
    url: Optional[str] = None


class CheckGuardrailsRequest(BaseModel):
    action: ActionContext
    agent: Optional[AgentInfo] = None


class Violation(BaseModel):
    guardrailId: str
    name: str
    message: str
    severity: str
    suggestion: Optional[str] = None


class CheckGuardrailsResponse(BaseModel):
    allowed: bool
    violations: List[Violation]
    warnings: List[Violation]
    evaluated: int
    evaluatedAt: datetime
    agent: str


# The evaluator that F003 wraps


@dataclass
class Found:
    id: str
    name: str
    message: str
    severity: str
    suggestion: Optional[str]


@dataclass
class Result:
    violations: List[Found]
    evaluated: int


def matches(expected: Any, value: Any) -> bool:
    if isinstance(expected, str) and expected[:1] in "<>":
        operator, number = expected.split(None, 1)
        if not isinstance(value, (int, float)):
            return False
        return {"<": value < float(number), ">": value > float(number)}[operator]
    return value == expected


async def evaluate_guardrails(context: Dict[str, Any]) -> Result:
    found = []
    for guardrail in GUARDRAILS:
        conditions = {key[10:]: value for key, value in guardrail.items() if key.startswith("condition_")}
        requires = {key[9:]: value for key, value in guardrail.items() if key.startswith("requires_")}
        if not all(key in context and matches(value, context[key]) for key, value in conditions.items()):
            continue
        if requires and all(key in context and matches(value, context[key]) for key, value in requires.items()):
            continue
        found.append(
            Found(
                guardrail["id"],
                guardrail["name"],
                guardrail["message"],
                guardrail["action"],
                guardrail.get("suggestion"),
            )
        )
    return Result(found, len(GUARDRAILS))


def log_guardrail_check(requesting_agent: str, action: str, allowed: bool, violations: List[Found], evaluated: int):
    line = {
        "timestamp": datetime.now(timezone.utc).isoformat(),
        "event": "guardrail_check",
        "requesting_agent": requesting_agent,
        "action": action,
        "allowed": allowed,
        "violations": [violation.id for violation in violations],
        "evaluated": evaluated,
    }
    with open(AUDIT, "a") as audit:
        audit.write(json.dumps(line) + "\n")


# a2a/cstp/methods.py (F003)


async def handle_check_guardrails(params: CheckGuardrailsRequest, agent_id: str) -> CheckGuardrailsResponse:
    context = {
        "category": params.action.category,
        "stakes": params.action.stakes,
        "confidence": params.action.confidence,
        **params.action.context,
    }
    result = await evaluate_guardrails(context)
    blocking = [violation for violation in result.violations if violation.severity == "block"]
    log_guardrail_check(agent_id, params.action.description, not blocking, blocking, result.evaluated)

    def of(severity: str) -> List[Violation]:
        return [
            Violation(guardrailId=v.id, name=v.name, message=v.message, severity=v.severity, suggestion=v.suggestion)
            for v in result.violations
            if v.severity == severity
        ]

    return CheckGuardrailsResponse(
        allowed=not blocking,
        violations=of("block"),
        warnings=of("warn"),
        evaluated=result.evaluated,
        evaluatedAt=datetime.now(timezone.utc),
        agent=AGENT,
    )


# a2a/auth.py, a2a/server.py, a2a/jsonrpc.py (F001)


async def verify_token(authorization: str = Header(...)) -> str:
    if not authorization.startswith("Bearer "):
        raise HTTPException(401, "Invalid authorization header")
    agent_id = TOKENS.get(authorization[7:])
    if not agent_id:
        raise HTTPException(401, "Invalid token")
    return agent_id


app = FastAPI(title=AGENT, version=VERSION)


def error(request: JsonRpcRequest, code: int, message: str, data: Any = None) -> Dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.id, "error": {"code": code, "message": message, "data": data}}


@app.post("/cstp")
async def cstp(request: JsonRpcRequest, agent_id: str = Depends(verify_token)) -> Dict[str, Any]:
    if request.method != "cstp.checkGuardrails":
        return error(request, -32601, "Method not found")
    try:
        params = CheckGuardrailsRequest(**request.params)
    except ValidationError as invalid:
        return error(request, -32602, "InvalidParams", json.loads(invalid.json()))
    result = await handle_check_guardrails(params, agent_id)
    return {"jsonrpc": "2.0", "id": request.id, "result": result.model_dump(mode="json")}


@app.get("/health")
async def health() -> Dict[str, Any]:
    return {"status": "healthy", "version": VERSION, "uptime_seconds": int(time.time() - STARTED)}


if __name__ == "__main__":
    fast = "--fast" in sys.argv
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop" if fast else "asyncio",
        http="httptools" if fast else "h11",
        access_log=False,
        log_level="warning",
    )
