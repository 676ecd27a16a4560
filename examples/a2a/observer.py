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
import re
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
        self._closed = False

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
        if self._closed:
            self._drop("the observer is closed")
        elif len(body) > self.max_body:
            self._drop(f"a body of {len(body)} bytes is over max_body")
        elif self.fail_closed:
            await self._send(body, agent)
        else:
            if self._worker is None:
                self._worker = asyncio.create_task(self._work())
            try:
                self._queue.put_nowait((body, agent))
            except asyncio.QueueFull:
                self._drop("the queue is full")

    async def aclose(self, timeout: float = 10.0) -> None:
        """Sends what is left, for so many seconds, and stops."""
        self._closed = True
        if self._worker is not None:
            try:
                await asyncio.wait_for(self._queue.join(), timeout)
            except asyncio.TimeoutError:
                logger.warning("the gate did not take what was left within %s seconds", timeout)
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
            self._worker = None
            self._count_dropped("the observer was closed", self._queue.qsize())
        if self._own_http:
            await self._http.aclose()

    async def _work(self) -> None:
        while True:
            body, agent = await self._queue.get()
            try:
                await self._send(body, agent)
            finally:
                self._queue.task_done()

    async def _send(self, body: bytes, agent: str) -> None:
        try:
            answer = await self._http.post(
                self._url, params={"agent": agent}, content=body, headers=self._headers
            )
        except asyncio.CancelledError:
            self._count_dropped("cancelled on its way to the gate")
            raise
        except Exception as error:  # Whatever it is, it must not end the worker.
            logger.warning("the gate cannot be reached: %r", error)
            self._drop("the gate cannot be reached")
            return
        if answer.is_success:
            self.sent += 1
            return
        # What the gate says is for the log, and not for whoever the exception is shown to.
        logger.warning("the gate answered %s: %s", answer.status_code, answer.text[:500])
        if answer.status_code not in (400, 413, 422):
            self._drop(f"the gate answered {answer.status_code}")
            return
        self.refused += 1
        if self.fail_closed:
            raise ObservationFailed("the gate does not understand what was observed")

    def _drop(self, why: str) -> None:
        self._count_dropped(why)
        if self.fail_closed:
            raise ObservationFailed(why)

    def _count_dropped(self, why: str, count: int = 1) -> None:
        if count:
            self.dropped += count
            logger.warning("not recorded (%d): %s", count, why)


# What may come before JSON, in any encoding that Python's `json` detects.
_BLANK = b" \t\r\n\0\xef\xbb\xbf\xfe\xff"
_EVENT_STREAM = re.compile(r'text/event-stream(\s*;\s*charset="?utf-8"?)?')
# Not `\r`, `\n` for what is one line end.
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")


class _Tap:
    """Finds what is to be recorded in a body as it goes by, and says what may be handed over.

    What is JSON shows in how a body begins: SDKs read it whatever its content type says."""

    def __init__(self, observer: Observer, agent: str, headers) -> None:
        self._observer = observer
        self._agent = agent
        self._type = _header(headers, b"content-type")
        self._encoding = _header(headers, b"content-encoding")
        self._kind: str | None = None
        """`json`, `events`, `other`, or not known before something other than blanks goes by."""
        self._buffer = bytearray()
        """What has not been recorded."""
        self._searched = 0
        """Up to where no blank line begins in it."""
        self._over = False
        """Whether the body, or this event of it, is too long to be recorded."""

    async def push(self, chunk: bytes) -> bytes:
        """What of the body may be handed over now."""
        if self._kind is None and chunk:
            self._kind = self._kind_of(chunk)
        if self._kind == "other":
            held, self._buffer = bytes(self._buffer), bytearray()
            return held + chunk if self._observer.fail_closed else chunk
        done = b""
        if self._kind == "events":
            self._buffer += chunk
            done = await self._take_events()
        elif not self._over:
            self._buffer += chunk
        if len(self._buffer) > self._observer.max_body:
            if not self._over:
                self._over = True
                self._observer._drop("a body is over max_body")
            # The end may be half of a blank line.
            del self._buffer[:-2]
            self._searched = 0
        return done if self._observer.fail_closed else chunk

    async def finish(self) -> bytes:
        """The rest of it."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        if not self._over and self._kind == "json":
            await self._observer.observe(rest, self._agent)
        elif not self._over and self._kind == "events":
            await self._observer.observe(_data(rest), self._agent)
        return rest if self._observer.fail_closed else b""

    def _kind_of(self, chunk: bytes) -> str | None:
        if self._encoding not in ("", "identity"):
            self._observer._drop(f"a body is compressed ({self._encoding})")
            return "other"
        begin = chunk.lstrip(_BLANK)[:1]
        if not begin:
            return None
        if begin in b"{[":
            return "json"
        if "text/event-stream" in self._type:
            if _EVENT_STREAM.fullmatch(self._type):
                return "events"
            self._observer._drop(f"a stream is not plain UTF-8 ({self._type})")
            return "other"
        return "json" if not self._type or "json" in self._type else "other"

    async def _take_events(self) -> bytes:
        """Records the whole events, and takes them out of the buffer."""
        start = 0
        while end := _BLANK_LINE.search(self._buffer, self._searched):
            if not self._over:
                await self._observer.observe(_data(self._buffer[start : end.end()]), self._agent)
            self._over = False
            start = self._searched = end.end()
        done = bytes(self._buffer[:start])
        del self._buffer[:start]
        # A blank line may have begun in the last two bytes.
        self._searched = max(len(self._buffer) - 2, 0)
        return done


def _data(event: bytes) -> bytes:
    """What an event of a stream says."""
    lines = bytes(event).splitlines()
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))


class _Transport(httpx.AsyncBaseTransport):
    def __init__(self, observer: Observer, inner: httpx.AsyncBaseTransport) -> None:
        self._observer = observer
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # What is compressed on the way cannot be looked at here.
        request.headers["Accept-Encoding"] = "identity"
        body = _Stream(request.stream, _Tap(self._observer, self._observer.agent, request.headers.raw))
        await body.begin()
        response = await self._inner.handle_async_request(
            httpx.Request(
                request.method, request.url, headers=request.headers, stream=body, extensions=request.extensions
            )
        )
        headers, stream = response.headers, response.stream
        if response.is_stream_consumed:  # By the inner transport, which has decompressed it, too.
            headers.pop("Content-Encoding", None)
            stream = httpx.ByteStream(response.content)
        peer = f"{request.url.scheme}://{request.url.netloc.decode()}"
        return httpx.Response(
            response.status_code,
            headers=headers,
            stream=_Stream(stream, _Tap(self._observer, peer, headers.raw)),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, tap: _Tap) -> None:
        self._inner = inner
        self._tap = tap
        self._chunks = self._tapped()
        self._first = b""

    async def begin(self) -> None:
        """Reads up to what may be handed over first."""
        self._first = await anext(self._chunks, b"")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._first:
            yield self._first
        async for chunk in self._chunks:
            yield chunk

    async def _tapped(self) -> AsyncIterator[bytes]:
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
        except Exception:
            if call.failure is None:
                raise
        # The application may have made an answer of it, or wrapped it.
        if call.failure is None:
            return
        if call.started:
            raise call.failure
        logger.error("refused: %s", call.failure)
        await _refuse(send)


class _Call:
    """One request to a server, and its answer."""

    def __init__(self, observer: Observer, caller: str, scope, receive, send) -> None:
        self.failure: ObservationFailed | None = None
        """Why nothing more may be said."""
        self.started = False
        """Whether the caller has been answered anything."""
        self._observer = observer
        self._receive = receive
        self._send = send
        self._request = _Tap(observer, caller, scope["headers"])
        self._answer: _Tap | None = None
        self._start: dict | None = None

    async def receive(self):
        message = await self._receive()
        if message["type"] == "http.request":
            message = await self._tapped(self._request, message)
        return message

    async def send(self, message) -> None:
        if self.failure is not None:
            raise self.failure
        if message["type"] == "http.response.start":
            self._answer = _Tap(self._observer, self._observer.agent, message.get("headers", []))
            if self._observer.fail_closed:
                # Kept back until there is something to hand over: until then, the call can still be refused.
                self._start = message
                return
        elif message["type"] == "http.response.body" and self._answer is not None:
            message = await self._tapped(self._answer, message)
            if self._start is not None and not message["body"] and message.get("more_body", False):
                return
        self.started = True
        if self._start is not None:
            start, self._start = self._start, None
            await self._send(start)
        await self._send(message)

    async def _tapped(self, tap: _Tap, message):
        if self.failure is not None:
            raise self.failure
        try:
            body = await tap.push(message.get("body", b""))
            if not message.get("more_body", False):
                body += await tap.finish()
        except ObservationFailed as failure:
            self.failure = failure
            raise
        return {**message, "body": body}


async def _refuse(send) -> None:
    body = b'{"error": "evidence of this call could not be recorded"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _header(headers, name: bytes) -> str:
    """All that is said under this name: who reads it may go by the first, by the last or by any."""
    values = [bytes(value).decode("latin-1").strip().lower() for key, value in headers if bytes(key).lower() == name]
    return ", ".join(values)
