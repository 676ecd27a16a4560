"""Evidence of A2A traffic: sends what an agent says and hears to Portcullis.

For a client of a2a-sdk, observe its HTTP client:

    observer = Observer("http://127.0.0.1:8100", token, agent="agent://planner")
    http = httpx.AsyncClient(transport=observer.transport())
    client = await create_client(url, ClientConfig(httpx_client=http))

For a server, wrap its application, inside of anything that compresses:

    app = observer.middleware(Starlette(routes=[...]))

Either works for JSON-RPC, for the HTTP binding and for streams, in both generations of the protocol, since it looks at
the bytes and not at the SDK's types. Bodies are sent on in the background, in order, through a queue with room for
`max_queue` of them; one that finds it full, or is longer than `max_body`, is counted in `observer.dropped` and not
sent. Neither a slow nor an absent gate holds up or fails the agent. With `fail_closed=True` it does: nothing is sent or
handed over before the evidence of it is recorded, and `ObservationFailed` is raised if it cannot be. `await
observer.aclose()` sends what is left.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import httpx

logger = logging.getLogger("portcullis.observer")


class ObservationFailed(Exception):
    """What was observed could not be recorded."""


class Observer:
    """Sends bodies of A2A traffic to one gate, on behalf of one agent."""

    def __init__(
        self,
        gate: str,
        token: str,
        agent: str,
        *,
        fail_closed: bool = False,
        max_body: int = 1 << 20,
        max_queue: int = 256,
        timeout: float = 5.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        if not token:
            raise ValueError("token is empty: use one from auth.tokens in the gate's configuration")
        self.agent = agent
        self.fail_closed = fail_closed
        self.max_body = max_body
        self.sent = 0
        """How many bodies the gate took."""
        self.refused = 0
        """How many it did not understand, such as JSON that is not A2A."""
        self.dropped = 0
        """How many never got there."""
        self._url = f"{gate.rstrip('/')}/v1/a2a/import"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._own_http = http is None
        self._http = http or httpx.AsyncClient(timeout=timeout)
        self._queue: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue(max_queue)
        self._worker: asyncio.Task[None] | None = None

    def transport(self, inner: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncBaseTransport:
        """A transport for the agent's own HTTP client, around another one."""
        return _Transport(self, inner or httpx.AsyncHTTPTransport())

    def middleware(self, app, *, caller: Callable[[dict], str] | None = None):
        """The agent's ASGI application, observed. `caller` names the agent that a request (its scope) comes from; without
        it, requests are recorded as by `unauthenticated-caller`."""
        return _Middleware(self, app, caller or (lambda scope: "unauthenticated-caller"))

    async def observe(self, body: bytes, agent: str) -> None:
        """Records one body, now or in the background."""
        if not body.strip():
            return
        if len(body) > self.max_body:
            self._drop(f"a body of {len(body)} bytes is over max_body")
            return
        if self.fail_closed:
            await self._send(body, agent)
            return
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        try:
            self._queue.put_nowait((body, agent))
        except asyncio.QueueFull:
            self._drop("the queue is full")

    async def aclose(self, timeout: float = 10.0) -> None:
        """Sends what is left, for so many seconds, and stops."""
        if self._worker is not None:
            try:
                await asyncio.wait_for(self._queue.join(), timeout)
            except asyncio.TimeoutError:
                self.dropped += self._queue.qsize()
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
            self._worker = None
        if self._own_http:
            await self._http.aclose()

    async def _work(self) -> None:
        while True:
            body, agent = await self._queue.get()
            try:
                await self._send(body, agent)
            except Exception as error:  # The agent goes on, whatever happens to its evidence.
                logger.warning("%s", error)
            finally:
                self._queue.task_done()

    async def _send(self, body: bytes, agent: str) -> None:
        try:
            answer = await self._http.post(
                self._url, params={"agent": agent}, content=body, headers=self._headers
            )
        except httpx.HTTPError as error:
            self.dropped += 1
            raise ObservationFailed(f"the gate cannot be reached: {error!r}") from error
        if answer.is_success:
            self.sent += 1
        elif answer.status_code in (400, 413, 422):
            self.refused += 1
            raise ObservationFailed(f"the gate does not understand what was observed: {answer.text[:500]}")
        else:
            self.dropped += 1
            raise ObservationFailed(f"the gate answered {answer.status_code}: {answer.text[:500]}")

    def _drop(self, why: str) -> None:
        self.dropped += 1
        if self.fail_closed:
            raise ObservationFailed(why)
        logger.warning("not recorded: %s", why)


class _Tap:
    """Finds what is to be recorded in a body as it goes by, and says what may be handed over."""

    def __init__(self, observer: Observer, agent: str, content_type: str, encoding: str) -> None:
        kind = content_type.partition(";")[0].strip().lower()
        self._observer = observer
        self._agent = agent
        self._events = kind == "text/event-stream"
        self._watched = self._events or kind == "application/json" or kind.endswith("+json")
        self._buffer = bytearray()
        self._over = False
        if self._watched and encoding.lower() not in ("", "identity"):
            observer._drop(f"the body is compressed ({encoding})")
            self._watched = False

    async def push(self, chunk: bytes) -> bytes:
        """What of the body may be handed over now."""
        if not self._watched or not chunk:
            return chunk
        if not self._over:
            self._buffer += chunk
        if self._events:
            return await self._push_events(chunk)
        if not self._over and len(self._buffer) > self._observer.max_body:
            self._give_up()
        return b"" if self._observer.fail_closed else chunk

    async def finish(self) -> bytes:
        """The rest of it."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        if not self._watched or self._over:
            return b""
        if self._events:
            return rest if self._observer.fail_closed else b""
        await self._observer.observe(rest, self._agent)
        return rest if self._observer.fail_closed else b""

    async def _push_events(self, chunk: bytes) -> bytes:
        done = bytearray()
        while not self._over:
            end = _end_of_event(self._buffer)
            if end is None:
                break
            event, self._buffer = self._buffer[:end], self._buffer[end:]
            lines = bytes(event).splitlines()
            data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
            await self._observer.observe(b"\n".join(data), self._agent)
            done += event
        if len(self._buffer) > self._observer.max_body:
            self._give_up()
        return bytes(done) if self._observer.fail_closed else chunk

    def _give_up(self) -> None:
        self._over = True
        self._buffer = bytearray()
        self._observer._drop("a body is over max_body")


def _end_of_event(buffer: bytearray) -> int | None:
    """Where the first whole event of a stream ends."""
    ends = [at + len(mark) for mark in (b"\n\n", b"\r\n\r\n", b"\r\r") if (at := buffer.find(mark)) >= 0]
    return min(ends, default=None)


class _Transport(httpx.AsyncBaseTransport):
    def __init__(self, observer: Observer, inner: httpx.AsyncBaseTransport) -> None:
        self._observer = observer
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # What is compressed on the way cannot be looked at here.
        request.headers["Accept-Encoding"] = "identity"
        tap = _Tap(self._observer, self._observer.agent, *_kind(request.headers.raw))
        await tap.push(await request.aread())
        await tap.finish()

        response = await self._inner.handle_async_request(request)
        peer = f"{request.url.scheme}://{request.url.netloc.decode()}"
        try:
            tap = _Tap(self._observer, peer, *_kind(response.headers.raw))
        except ObservationFailed:
            await response.aclose()
            raise
        response.stream = _Stream(response.stream, tap)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, tap: _Tap) -> None:
        self._inner = inner
        self._tap = tap

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            if ready := await self._tap.push(chunk):
                yield ready
        if ready := await self._tap.finish():
            yield ready

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Middleware:
    def __init__(self, observer: Observer, app, caller: Callable[[dict], str]) -> None:
        self._observer = observer
        self._app = app
        self._caller = caller

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = _Call(self._observer, self._caller(scope), scope, receive, send)
        try:
            await self._app(scope, call.receive, call.send)
        except ObservationFailed as error:
            if call.started:
                raise
            logger.error("refused: %s", error)
            await _refuse(send)


class _Call:
    """One request to a server, and its answer."""

    def __init__(self, observer: Observer, caller: str, scope, receive, send) -> None:
        self.started = False
        """Whether the caller has been answered anything."""
        self._observer = observer
        self._caller = caller
        self._kind = _kind(scope["headers"])
        self._receive = receive
        self._send = send
        self._request: _Tap | None = None
        self._answer: _Tap | None = None
        self._start: dict | None = None

    async def receive(self):
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        if self._request is None:
            self._request = _Tap(self._observer, self._caller, *self._kind)
        return await _tapped(self._request, message)

    async def send(self, message) -> None:
        if message["type"] == "http.response.start":
            self._answer = _Tap(self._observer, self._observer.agent, *_kind(message["headers"]))
            # Kept back until there is something to hand over: until then, the call can still be refused.
            self._start = message
            return
        if message["type"] == "http.response.body" and self._answer is not None:
            message = await _tapped(self._answer, message)
        if self._start is not None:
            start, self._start = self._start, None
            self.started = True
            await self._send(start)
        await self._send(message)


async def _tapped(tap: _Tap, message):
    body = await tap.push(message.get("body", b""))
    if not message.get("more_body", False):
        body += await tap.finish()
    return {**message, "body": body}


async def _refuse(send) -> None:
    body = b'{"error": "evidence of this call could not be recorded"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _kind(headers) -> tuple[str, str]:
    """Content type and encoding."""
    named = {bytes(name).lower(): bytes(value).decode("latin-1") for name, value in headers}
    return named.get(b"content-type", ""), named.get(b"content-encoding", "")
