"""The process that parses files. It reads jobs from its standard input and writes what it found;
files of others are parsed here so that one that takes too long, or all memory, can be killed."""

from __future__ import annotations

import struct
import sys
from typing import BinaryIO

import msgspec

from retinue.syntax.c_preparation import prepared
from retinue.syntax.changes.code_tokens import code_tokens
from retinue.syntax.extraction import file_facts
from retinue.syntax.file_scan import FileScan, scan

HEAD = struct.Struct("<I")


class ParseJob(msgspec.Struct, array_like=True):
    """`language` "" asks for the scan alone. `macros` are those of C that expand to attributes.
    `has_cpp`: a header that looks like C++ is C++. `has_tokens`: the tokens are wanted as well."""

    path: str
    language: str
    data: bytes
    macros: dict[bytes, bool] | None = None
    has_cpp: bool = False
    has_tokens: bool = False


class ParseReply(msgspec.Struct, array_like=True):
    """`facts` are encoded: the cache need not decode them. `language` is what it was parsed as."""

    scan: FileScan | None = None
    facts: bytes = b""
    problem: str = ""
    language: str = ""
    tokens: bytes = b""


def read_frame(stream: BinaryIO) -> bytes | None:
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    (size,) = HEAD.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None


def perform(job: ParseJob) -> ParseReply:
    reply = ParseReply(scan=scan(job.path, job.data), language=job.language)
    if not job.language or (reply.scan is not None and reply.scan.role):
        return reply
    data = job.data
    if job.has_cpp and reply.scan is not None and reply.scan.looks_cpp:
        reply.language = "cpp"
    if job.macros is not None and reply.language in ("c", "cpp"):
        data = prepared(data, job.macros)
    try:
        reply.facts = msgspec.msgpack.encode(file_facts(reply.language, data))
        if job.has_tokens:
            reply.tokens = msgspec.msgpack.encode(code_tokens(reply.language, data))
    except (RecursionError, MemoryError, ValueError) as error:
        reply.problem = f"it could not be parsed: {type(error).__name__}"
    return reply


def main() -> None:
    jobs = msgspec.msgpack.Decoder(ParseJob)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while (frame := read_frame(source)) is not None:
        data = msgspec.msgpack.encode(perform(jobs.decode(frame)))
        target.write(HEAD.pack(len(data)))
        target.write(data)
        target.flush()


if __name__ == "__main__":
    main()
