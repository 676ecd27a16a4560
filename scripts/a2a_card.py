"""Fetches the agent card as an A2A client does, and checks what the client makes of it.

    python scripts/a2a_card.py http://127.0.0.1:8100

Needs scripts/requirements.txt. Exits with 1 and says why if the card is not one that a client can use.
"""

import asyncio
import sys

import httpx
from a2a.client import A2ACardResolver

PATHS = ["/.well-known/agent-card.json", "/.well-known/agent.json"]
METHODS = [
    "cstp.announceIntent",
    "cstp.checkGuardrails",
    "cstp.getCalibration",
    "cstp.getDecision",
    "cstp.getIntent",
    "cstp.listDecisions",
    "cstp.listGuardrails",
    "cstp.queryDecisions",
    "cstp.recordDecision",
    "cstp.reviewDecision",
]


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: expected {wanted!r}, found {found!r}")


def check(card, url):
    expect("name", card.name, "portcullis")
    expect("description", card.description, "Decision intelligence for AI agents")
    if not card.version:
        sys.exit("version: there is none")
    interfaces = [(i.url, i.protocol_binding) for i in card.supported_interfaces]
    expect("supported interfaces", interfaces, [(f"{url}/cstp", "JSONRPC")])
    expect("skills", [skill.id for skill in card.skills], METHODS)
    for skill in card.skills:
        if not (skill.name and skill.description and skill.tags):
            sys.exit(f"skill {skill.id}: it has no name, description or tags")
    scheme = card.security_schemes["bearer"].http_auth_security_scheme.scheme
    expect("security scheme", scheme.lower(), "bearer")
    required = [sorted(r.schemes) for r in card.security_requirements]
    expect("security requirements", required, [["bearer"]])
    expect("streaming", card.capabilities.streaming, False)
    extensions = [(e.uri, e.required) for e in card.capabilities.extensions]
    expect("extensions", extensions, [("urn:cstp:1.0", True)])
    expect("input modes", list(card.default_input_modes), ["application/json"])


async def main(url):
    async with httpx.AsyncClient(trust_env=False) as client:
        for path in PATHS:
            resolver = A2ACardResolver(client, url, agent_card_path=path)
            check(await resolver.get_agent_card(), url)
            print(f"{path}: ok")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1].rstrip("/")))
