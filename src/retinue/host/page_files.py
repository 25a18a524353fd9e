"""The dashboard's files: one page and its modules, read from the package and served next to the
API. What the page may load, run and ask is its own origin's, and nothing in it is inline but the
import map, which the policy names by its hash."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retinue.host.problem_documents import HttpProblem

FOLDER = Path(__file__).parent / "page"
PLACES = (
    *("/", "/needs-you", "/agents", "/models", "/costs", "/deliveries", "/health"),
    *("/settings", "/chat", "/chat/{run}", "/r/{run}", "/r/{run}/{agent:path}"),
)
"""What the page itself shows, by its address."""
MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self' 'sha256-{hash}'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)


class PageFile(NamedTuple):
    """A file of the page, as it is sent: as it is, or packed with gzip."""

    body: bytes
    packed: bytes
    media: str
    tag: str


def page_routes() -> Sequence[Route]:
    """The page at each of its addresses, and its files."""
    pages = [Route(path, _page, methods=["GET"]) for path in PLACES]
    return [*pages, Route("/page/{name:path}", _file, methods=["GET"])]


@cache
def page_file(name: str) -> PageFile | None:
    """A file by its path below the page's folder; None when there is none of that name."""
    if name not in _names():
        return None
    body = (FOLDER / name).read_bytes()
    tag = hashlib.sha256(body).hexdigest()[:32]
    return PageFile(body, gzip.compress(body, mtime=0), MEDIA[Path(name).suffix], tag)


@cache
def _names() -> frozenset[str]:
    files = (path for path in FOLDER.rglob("*") if path.suffix in MEDIA)
    return frozenset(path.relative_to(FOLDER).as_posix() for path in files)


def page_policy(html: bytes) -> str:
    """The content security policy of a page, which lets its one import map through."""
    import_map = _MAP.search(html)
    digest = hashlib.sha256(import_map[1] if import_map else b"").digest()
    return POLICY.format(hash=base64.b64encode(digest).decode())


async def _page(request: Request) -> Response:
    """The page, with the path under which the application is mounted before its addresses."""
    _check(request)
    file = page_file("index.html")
    assert file is not None
    root = request.scope.get("root_path", "").rstrip("/")
    if not re.fullmatch(r"[\w./~-]*", root):
        raise HttpProblem(404, "The dashboard cannot be shown under this path.")
    html = file.body.replace(b"{root}", root.encode())
    headers = {"cache-control": "no-store", "content-security-policy": page_policy(html)}
    return Response(html, 200, headers, file.media)


async def _file(request: Request) -> Response:
    _check(request)
    file = page_file(request.path_params["name"])
    if file is None or file.media == MEDIA[".html"]:
        raise HttpProblem(404, f"Nothing found at {request.url.path}.")
    headers = {"cache-control": "private, no-cache", "vary": "accept-encoding"}
    headers["etag"] = f'W/"{file.tag}"'
    if is_known(request.headers.get("if-none-match", ""), file.tag):
        return Response(status_code=304, headers=headers)
    if not takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.body, 200, headers, file.media)
    return Response(file.packed, 200, {**headers, "content-encoding": "gzip"}, file.media)


def is_known(header: str, tag: str) -> bool:
    """Whether a browser has the file: one of the tags that it sent. They are weak, since the packed
    file and the other one are the same to it."""
    tags = [one.strip().removeprefix("W/") for one in header.split(",")]
    return "*" in tags or f'"{tag}"' in tags


def takes_gzip(header: str) -> bool:
    """Whether a client reads what is packed: a quality of 0 means that it does not."""
    for part in header.lower().split(","):
        name, _, terms = part.partition(";")
        if name.strip() in ("gzip", "x-gzip", "*"):
            quality = re.fullmatch(r"\s*q\s*=\s*([01](?:\.\d*)?)\s*", terms)
            return quality is None or float(quality[1]) > 0
    return False


def _check(request: Request) -> None:
    """The guard has let someone in who may look."""
    from retinue.host.app import identity_of

    identity_of(request).need("read", "The dashboard")
