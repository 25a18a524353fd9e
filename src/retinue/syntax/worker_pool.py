"""The parsing workers of an engine: each is a process fed by a thread. A file that takes too long
or too much costs its worker, and the next file gets a new one."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from threading import Event, Thread

import msgspec

from retinue.sandbox import trusted_programs as programs
from retinue.syntax.worker import HEAD, ParseJob, ParseReply

FILE_SECONDS = 10.0
MAX_MEMORY = 1 << 30
MAX_REPLY = 64 << 20
MANY = 50
MOST_WORKERS = 8
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from retinue.syntax.worker import main; main()"
)


class WorkerLost(Exception):
    """The worker is gone, and why."""


class Worker:
    """One process, started when its first job comes."""

    def __init__(self, seconds: float = FILE_SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._decoder = msgspec.msgpack.Decoder(ParseReply)

    def ask(self, job: ParseJob) -> ParseReply:
        process = self._started()
        data = msgspec.msgpack.encode(job)
        try:
            return self._decoder.decode(self._exchange(process, HEAD.pack(len(data)) + data))
        except (WorkerLost, OSError, msgspec.DecodeError) as error:
            self.close()
            return ParseReply(problem=f"it could not be parsed: {error}")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            paths = json.dumps([p for p in sys.path if os.path.isabs(p)])
            self._process = subprocess.Popen(
                [programs.python(), "-I", "-S", "-X", "utf8", "-c", _START, paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
            with contextlib.suppress(OSError, AttributeError):
                limit = (MAX_MEMORY, MAX_MEMORY)
                resource.prlimit(self._process.pid, resource.RLIMIT_DATA, limit)
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes) -> bytes:
        """Write and read at the same time, so that the two sides cannot block each other."""
        assert process.stdin is not None and process.stdout is not None
        out, into = process.stdin.fileno(), process.stdout.fileno()
        until = time.monotonic() + self._seconds
        rest, answer = memoryview(request), bytearray()
        with selectors.DefaultSelector() as waiting:
            waiting.register(into, selectors.EVENT_READ)
            waiting.register(out, selectors.EVENT_WRITE)
            while True:
                ready = waiting.select(max(0.0, until - time.monotonic()))
                if not ready:
                    raise WorkerLost(f"it took longer than {self._seconds:g} s")
                for key, _ in ready:
                    if key.fd == out:
                        rest = rest[os.write(out, rest[: 1 << 16]) :]
                        if not rest:
                            waiting.unregister(out)
                    elif (piece := os.read(into, 1 << 20)) == b"":
                        raise WorkerLost("the parser ended, out of memory or by a fault")
                    else:
                        answer += piece
                if len(answer) >= HEAD.size:
                    (size,) = HEAD.unpack_from(answer)
                    if size > MAX_REPLY:
                        raise WorkerLost("what it says is too large")
                    if len(answer) >= HEAD.size + size:
                        return bytes(answer[HEAD.size :])

    def close(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


Source = Callable[[], ParseJob | None]


def answers(
    jobs: Iterable[Source], n_jobs: int, stop: Event, n_workers: int = 0
) -> Iterator[tuple[int, ParseReply]]:
    """What the workers say to each job, in the order in which they are done, with the number of
    the job. A job is made by the thread that sends it, None when there is nothing to send: the
    bytes of few files are in memory at a time."""
    if not n_jobs:
        return
    n_workers = n_workers or (1 if n_jobs < MANY else min(os.cpu_count() or 1, MOST_WORKERS))
    waiting: SimpleQueue[tuple[int, Source]] = SimpleQueue()
    for pair in enumerate(jobs):
        waiting.put(pair)
    queue: SimpleQueue[tuple[int, ParseReply] | BaseException | None] = SimpleQueue()
    over = Event()

    def feed() -> None:
        worker = Worker()
        try:
            while not stop.is_set() and not over.is_set():
                number, source = waiting.get_nowait()
                job = source()
                if job is not None:
                    queue.put((number, worker.ask(job)))
        except Empty:
            pass
        except BaseException as error:
            queue.put(error)
        finally:
            worker.close()
            queue.put(None)

    threads = [Thread(target=feed, daemon=True) for _ in range(min(n_workers, n_jobs))]
    for thread in threads:
        thread.start()
    n_threads = len(threads)
    try:
        while n_threads:
            item = queue.get()
            if item is None:
                n_threads -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        over.set()
        for thread in threads:
            thread.join()
