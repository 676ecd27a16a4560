"""A sidecar that somebody else wrote, and not well: its handlers fail, and its health stops talking.

    faulty.py PROTOS [--unary]
"""

import asyncio
import re
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

sys.path.insert(0, sys.argv[1])
wire, services = grpc.protos_and_services("portcullis/deep/v1/deep.proto")
UNARY = "--unary" in sys.argv


class Sidecar(services.GuardSidecarServicer):
    async def Describe(self, request, context):
        rule = wire.Rule(id="hf-jailbreak", version="1.0.0", events=["llm_before"], ready=True)
        return wire.DescribeResponse(rules=[rule])

    async def Evaluate(self, request, context):
        if "poison" in request.event.text_content:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "poisoned")
        return await answer(request)

    async def EvaluateStream(self, requests, context):
        if UNARY:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no streams")
        tasks = set()

        async def write(request):
            await context.write(await answer(request))

        try:
            async for request in requests:
                if "poison" in request.event.text_content:
                    raise ValueError("poisoned")
                tasks.add(asyncio.create_task(write(request)))
        finally:
            for task in tasks:
                task.cancel()


async def answer(request):
    wait = re.search(r"wait (\d+) ms", request.event.text_content)
    await asyncio.sleep(int(wait[1]) / 1000 if wait else 0)
    response = wire.EvaluateResponse(correlation_id=request.correlation_id, run_id=request.event.run_id)
    for rule in request.rules:
        response.answers.add(rule_id=rule).clear.SetInParent()
    return response


class Health(health_pb2_grpc.HealthServicer):
    asked = 0

    async def Watch(self, request, context):
        Health.asked += 1
        if Health.asked == 1:
            yield health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
            return
        yield health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        await asyncio.Event().wait()


async def main():
    server = grpc.aio.server(
        options=[
            ("grpc.http2.min_ping_interval_without_data_ms", 500),
            ("grpc.keepalive_permit_without_calls", 1),
        ]
    )
    services.add_GuardSidecarServicer_to_server(Sidecar(), server)
    health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    print("faulty is ready", flush=True)
    await server.wait_for_termination()


asyncio.run(main())
