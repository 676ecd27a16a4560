"""Records what clients and servers of a2a-sdk say to each other, as fixtures for the importer.

    python scripts/a2a_fixtures.py            # writes crates/portcullis-core/tests/it/fixtures/a2a/sdk-*.ndjson
    python scripts/a2a_fixtures.py --check    # fails if they are not what this SDK says

Needs scripts/requirements.txt. Each line is one body as it was sent, but for ids and times, which are renamed in the
order that they come up in. Both generations hold the same conversation, so that line N of one is line N of the other.
"""

import asyncio
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "a2a"))

import httpx  # noqa: E402
from a2a.client import ClientConfig, create_client  # noqa: E402
from a2a.server.request_handlers import DefaultRequestHandler  # noqa: E402
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes  # noqa: E402
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore  # noqa: E402
from a2a.types import (  # noqa: E402
    AgentInterface,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    TaskPushNotificationConfig,
)
from demo import Drafter, ask, card  # noqa: E402
from observer import Observer  # noqa: E402
from starlette.applications import Starlette  # noqa: E402

FIXTURES = ROOT / "crates/portcullis-core/tests/it/fixtures/a2a"
BASE = "http://drafter.example"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
NAMES = {"messageId": "message", "contextId": "context", "taskId": "task", "artifactId": "artifact"}
NAMES |= {"message_id": "message", "context_id": "context", "task_id": "task"}


class Recorder(Observer):
    """Keeps what an observer would have sent."""

    def __init__(self):
        super().__init__("http://gate.example", "unused", "unused", fail_closed=True)
        self.bodies = []

    async def observe(self, body, agent):
        if body.strip():
            self.bodies.append(body.decode())


def agent(protocol, binding):
    agent_card = card(f"{BASE}/", protocol)
    interface = AgentInterface(url=BASE, protocol_binding=binding, protocol_version=protocol)
    if binding != "JSONRPC":
        agent_card.supported_interfaces[0].CopyFrom(interface)
    handler = DefaultRequestHandler(
        agent_executor=Drafter(),
        task_store=InMemoryTaskStore(),
        agent_card=agent_card,
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    routes = create_agent_card_routes(agent_card)
    routes += create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)
    routes += create_rest_routes(handler, enable_v0_3_compat=True)
    return Starlette(routes=routes)


async def said(client, request):
    """The task that came of a request, if one did."""
    task = None
    async for event in client.send_message(request):
        task = event.task.id if event.HasField("task") else task
    return task


async def converse(protocol, binding):
    recorder = Recorder()
    transport = recorder.transport(httpx.ASGITransport(agent(protocol, binding)))
    async with httpx.AsyncClient(transport=transport) as http:
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
        client = await create_client(BASE, config)
        request = ask("Draft three days in Portugal.")
        # One member each: those of a protobuf struct come in no particular order.
        request.message.metadata.update({"assay_g4": {"agent_card": {"visible": True}}})
        request.metadata.update({"tenant": "north"})
        drafted = await said(client, request)
        await said(client, ask("ping"))

        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], streaming=False)
        client = await create_client(BASE, config)
        await said(client, ask("Draft one day in Porto."))
        await said(client, ask("ping"))
        waiting = await said(client, ask("wait"))
        task = await client.get_task(GetTaskRequest(id=waiting))
        await said(client, ask("wait", task_id=waiting, context_id=task.context_id))
        await client.cancel_task(CancelTaskRequest(id=waiting))
        setting = TaskPushNotificationConfig(task_id=drafted, id="hook", url="https://hooks.example/a2a", token="t")
        await client.create_task_push_notification_config(setting)
        which = {"task_id": drafted, "id": "hook"}
        await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(**which))
        if binding == "JSONRPC":
            await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=drafted))
            await client.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(**which))
        try:
            await client.get_task(GetTaskRequest(id="no-such-task"))
        except Exception as error:
            assert "not found" in str(error).lower(), error
        if protocol == "1.0":
            await client.list_tasks(ListTasksRequest(include_artifacts=True))
    return renamed(recorder.bodies)


def renamed(bodies):
    names, counts = {}, {}

    def name(kind, value):
        if UUID.fullmatch(value) and value not in names:
            counts[kind] = counts.get(kind, 0) + 1
            names[value] = f"{kind}-{counts[kind]}"

    def walk(value):
        if isinstance(value, list):
            for item in value:
                walk(item)
        if isinstance(value, dict):
            for key in sorted(value):
                if key in NAMES and isinstance(value[key], str):
                    name(NAMES[key], value[key])
                elif key == "id" and isinstance(value[key], str):
                    name("call" if "jsonrpc" in value else "task" if "status" in value else "other", value[key])
                walk(value[key])

    lines = []
    for body in bodies:
        walk(json.loads(body))
        for found in UUID.findall(body):
            name("other", found)
        body = UUID.sub(lambda found: names[found.group()], body)
        lines.append(TIME.sub("2026-02-27T11:05:00Z", body).replace("\n", " "))
    return "".join(line + "\n" for line in lines)


async def main():
    stale = []
    for protocol, binding, name in (
        ("1.0", "JSONRPC", "sdk-1.0"),
        ("0.3", "JSONRPC", "sdk-0.3"),
        ("1.0", "HTTP+JSON", "sdk-1.0-http"),
        ("0.3", "HTTP+JSON", "sdk-0.3-http"),
    ):
        path = FIXTURES / f"{name}.ndjson"
        text = await converse(protocol, binding)
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
            continue
        FIXTURES.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"{path.relative_to(ROOT)}: {text.count(chr(10))} bodies")
    if stale:
        sys.exit(f"not what this SDK says: {', '.join(stale)}; run scripts/a2a_fixtures.py and look at the difference")


if __name__ == "__main__":
    asyncio.run(main())
