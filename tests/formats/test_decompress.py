"""Compressed bodies, however they are cut."""

from __future__ import annotations

import gzip
import zlib

import pytest

from retinue.formats.decompress import Decompressor

TEXT = b"hello world " * 1_000
RAW = zlib.compressobj(wbits=-15)
BODIES = {
    "plain": ("identity", TEXT),
    "no name": ("", TEXT),
    "gzip": ("gzip", gzip.compress(TEXT)),
    "members": ("gzip", gzip.compress(TEXT[:5_000]) + gzip.compress(TEXT[5_000:])),
    "filling": ("x-gzip", gzip.compress(TEXT) + b"\0" * 9),
    "zlib": ("deflate", zlib.compress(TEXT)),
    "zlib with filling": ("deflate", zlib.compress(TEXT) + b"\r\n"),
    "deflate": ("deflate", RAW.compress(TEXT) + RAW.flush()),
}


@pytest.mark.parametrize("size", [1, 2, 10, 1 << 20])
@pytest.mark.parametrize("name", list(BODIES))
def test_a_body_is_the_same_however_it_is_cut(name: str, size: int) -> None:
    encoding, body = BODIES[name]
    unpack = Decompressor(encoding)
    pieces = [body[n : n + size] for n in range(0, len(body), size)]
    parts = [part for piece in pieces for part in unpack.slices(piece)]
    assert b"".join(parts) == TEXT
    assert unpack.n_out == len(TEXT)
    assert len(body) - 9 <= unpack.n_in <= len(body)


def test_no_slice_is_longer_than_asked_for() -> None:
    body = gzip.compress(b"x" * (1 << 20))
    parts = list(Decompressor("gzip").slices(body, 1_000))
    assert max(map(len, parts)) == 1_000
    assert sum(map(len, parts)) == 1 << 20


def test_a_reader_that_stops_costs_no_more_than_it_has_read() -> None:
    unpack = Decompressor("gzip")
    next(unpack.slices(gzip.compress(b"x" * (64 << 20)), 1_000))
    assert unpack.n_out == 1_000


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_is_not_compressed_is_an_error(encoding: str) -> None:
    with pytest.raises(zlib.error):
        list(Decompressor(encoding).slices(b"\xff\xffnot packed at all"))
