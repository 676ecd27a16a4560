"""Two agents of a2a-sdk that talk to each other, both observed.

    python demo.py http://127.0.0.1:8100 TOKEN
    python demo.py http://127.0.0.1:8100 TOKEN --protocol 0.3 --fail-closed

A server drafts itineraries; a client reads its card, has one drafted, once as a stream and once at once, and looks at
what became of it. The evidence is then in the gate's log. Needs `a2a-sdk[http-server]` and `uvicorn`.
"""

import argparse
import asyncio
import socket

import httpx
import uvicorn
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_raw_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    GetTaskRequest,
    Role,
    SendMessageRequest,
)
from starlette.applications import Starlette

from observer import Observer


class Drafter(AgentExecutor):
    """Drafts an itinerary, asks back when told to wait, and answers `ping` without a task."""

    async def execute(self, context, event_queue):
        asked = context.get_user_input()
        if asked == "ping":
            await event_queue.enqueue_event(new_text_message("pong", context_id=context.context_id))
            return
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work(task.new_agent_message([new_text_part("Drafting.")]))
        if asked == "wait":
            await task.requires_input(task.new_agent_message([new_text_part("For whom?")]))
            return
        parts = [
            new_text_part("Day 1: Porto"),
            new_raw_part(b"%PDF-1.7", media_type="application/pdf", filename="itinerary.pdf"),
        ]
        await task.add_artifact(parts, name="itinerary", metadata={"draft": True}, last_chunk=True)
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url, protocol="1.0"):
    """The card of an agent that speaks one generation of the protocol."""
    return AgentCard(
        name="Drafter",
        description="Drafts itineraries.",
        version="1.2.3",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=protocol)],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[
            AgentSkill(id="itinerary.draft", name="Draft", description="Drafts one.", tags=["travel"]),
            AgentSkill(id="itinerary.book", name="Book", description="Books one.", tags=["travel"]),
        ],
    )


def agent(agent_card):
    """The agent as an ASGI application."""
    handler = DefaultRequestHandler(
        agent_executor=Drafter(),
        task_store=InMemoryTaskStore(),
        agent_card=agent_card,
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    routes = create_agent_card_routes(agent_card) + create_jsonrpc_routes(
        handler, "/", enable_v0_3_compat=True
    )
    return Starlette(routes=routes)


def ask(text, **of):
    """A request that says this."""
    message = new_text_message(text, role=Role.ROLE_USER, **of)
    return SendMessageRequest(message=message)


async def talk(url, http):
    """What the client does. Gives the ids of the tasks that came of it."""
    tasks = []
    for streaming in (True, False):
        config = ClientConfig(httpx_client=http, streaming=streaming)
        client = await create_client(url, config)
        async for event in client.send_message(ask("Draft three days in Portugal.")):
            if event.HasField("task"):
                tasks.append(event.task.id)
        await client.get_task(GetTaskRequest(id=tasks[-1]))
        async for event in client.send_message(ask("ping")):
            assert event.message.parts[0].text == "pong", event
    return tasks


async def main(args):
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    its = Observer(args.gate, args.token, "agent://drafter", fail_closed=args.fail_closed)
    mine = Observer(args.gate, args.token, "agent://planner", fail_closed=args.fail_closed)
    app = its.middleware(agent(card(f"{url}/", args.protocol)), caller=lambda scope: "agent://planner")
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with httpx.AsyncClient(transport=mine.transport(), timeout=30) as http:
            for task in await talk(url, http):
                print(f"task {task}")
    finally:
        server.should_exit = True
        await serving
        for name, observer in (("client", mine), ("server", its)):
            await observer.aclose()
            print(f"{name}: {observer.sent} sent, {observer.refused} refused, {observer.dropped} dropped")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("gate", help="URL of the gate")
    parser.add_argument("token", help="token of an agent, from auth.tokens")
    parser.add_argument("--protocol", choices=["1.0", "0.3"], default="1.0")
    parser.add_argument("--fail-closed", action="store_true")
    asyncio.run(main(parser.parse_args()))
