"""How the page is served: what is sent, as what, under which policy, and to whom."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.host import page_files
from retinue.host.identity import OWNER
from retinue.host.keyring import Keyring
from retinue.host.session_file import SessionFile
from tests.host.served import ADMIN, ALICE, BOB, Served, served
from tests.waiting import SECONDS

FILES = sorted(p for p in page_files.FOLDER.rglob("*") if p.is_file())
VENDOR = page_files.FOLDER / "vendor"


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served() as service:
        yield service


def test_every_file_is_sent_as_what_it_is(api: Served) -> None:
    for path in FILES:
        name = path.relative_to(page_files.FOLDER).as_posix()
        reply = api.call("GET", f"/page/{name}")
        if name == "index.html":
            assert reply.status == 404
            continue
        assert (reply.status, reply.body) == (200, path.read_bytes())
        assert reply.headers["content-type"] == page_files.MEDIA[path.suffix]
        assert reply.headers["x-content-type-options"] == "nosniff"
        packed = api.call("GET", f"/page/{name}", Accept_Encoding="gzip")
        assert gzip.decompress(packed.body) == reply.body
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.body) < len(reply.body) or len(reply.body) < 400
        for tag in (reply.headers["etag"], f'"other", {packed.headers["etag"]}'):
            again = api.call("GET", f"/page/{name}", If_None_Match=tag)
            assert again.status == 304 and not again.body
            assert again.headers["vary"] == reply.headers["vary"] == "accept-encoding"
    assert page_files.MEDIA[".mjs"].startswith("text/javascript")


@pytest.mark.parametrize(
    ("header", "is_packed"),
    [
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("*", True),
        ("gzip;q=0, identity", False),
        ("gzip; q=0.0", False),
        ("br, deflate", False),
        ("not-gzip", False),
        ("", False),
    ],
)
def test_what_is_packed_goes_to_those_who_read_it(header: str, is_packed: bool) -> None:
    assert page_files.takes_gzip(header) == is_packed


@pytest.mark.parametrize("name", ["../app.py", "%2e%2e/app.py", "vendor", "", "x.mjs", "vendor/"])
def test_nothing_else_is_sent(api: Served, name: str) -> None:
    assert api.call("GET", f"/page/{name}").status == 404


def test_the_page_runs_nothing_but_its_own_modules(api: Served) -> None:
    for place in ("/", "/r/01a1", "/r/01a1/01b2", "/needs-you", "/costs", "/settings"):
        reply = api.call("GET", place)
        policy = reply.headers["content-security-policy"]
        assert reply.status == 200 and "unsafe" not in policy and "default-src 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy and "connect-src 'self'" in policy
    html = reply.body.decode()
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", html, re.DOTALL)
    assert [attributes for attributes, text in scripts if text] == [' type="importmap"']
    assert " style=" not in html and " on" not in re.sub(r">[^<]*<", "><", html)
    names = json.loads(scripts[0][1])["imports"].values()
    assert all(api.call("GET", name).status == 200 for name in names)


def test_no_one_gets_the_page_without_a_key(api: Served) -> None:
    for place in ("/", "/r/x", "/page/app.mjs", "/page/style.css", "/page/vendor/preact.mjs"):
        assert api.call("GET", place, token=None).status == 401


def test_a_person_without_a_key_reads_what_to_do(api: Served) -> None:
    browser = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
    for place in ("/", "/r/x", "/?code=used-before"):
        reply = api.call("GET", place, token=None, Accept=browser)
        assert reply.status == 401 and reply.headers["content-type"].startswith("text/html")
        assert b"retinue dashboard" in reply.body and b"<script" not in reply.body
    assert api.call("POST", "/api/v1/runs", {}, token=None, Accept=browser).json["status"] == 401
    assert api.call("GET", "/", token=None).json["kind"] == "NotSignedIn"


def test_the_files_of_others_are_what_their_packages_have() -> None:
    lines = (VENDOR / "VENDORED.txt").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if not line.startswith("#")]
    assert {row[1] for row in rows} == {path.name for path in VENDOR.glob("*.mjs")}
    for digest, name, _, _, licence in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
        assert (VENDOR / licence).stat().st_size > 1_000


MOST_SENT = 115_000
"""Bytes of all code of the page as a browser loads it, packed; the limit is 150 KB."""
MOST_UNPACKED = 310_000


def n_loaded(api: Served, path: Path) -> int:
    """How many bytes of a file travel to a browser. The page itself has the same content at each
    address and is not packed."""
    if path.suffix == ".html":
        return len(api.call("GET", "/").body)
    name = path.relative_to(page_files.FOLDER).as_posix()
    return len(api.call("GET", f"/page/{name}", Accept_Encoding="gzip, deflate, br, zstd").body)


def test_the_page_is_small_and_names_no_other_host(api: Served) -> None:
    code = [p for p in FILES if p.suffix in (".mjs", ".css", ".html", ".svg")]
    n_sent = sum(n_loaded(api, path) for path in code)
    assert n_sent < MOST_SENT and sum(p.stat().st_size for p in code) < MOST_UNPACKED
    for path in code:
        hosts = set(re.findall(r"https?://([\w.]+)", path.read_text(encoding="utf-8")))
        assert hosts <= {"www.w3.org"}, path


def test_an_overview_has_what_each_tree_came_to(api: Served) -> None:
    runs = [api.finished(f"task {n}") for n in range(3)]
    first = api.get("/overview?limit=2").json
    assert [run["id"] for run in first["runs"]] == runs[:0:-1]
    line = first["runs"][0]
    assert (line["state"], line["text"], line["n_agents"], line["n_done"]) == (
        "completed",
        "Done.",
        1,
        1,
    )
    [share] = line["shares"]
    assert (share["agent"], share["n_runs"], share["usd"]) == ("main", 1, line["usd"])
    assert share["input"] + share["output"] == line["tokens"]
    rest = api.get(f"/overview?before={first['next']}").json
    assert rest["runs"][0]["id"] == runs[0] and rest["now"] > line["created_at"]
    assert [run["id"] for run in api.get(f"/overview?run={runs[1]}").json["runs"]] == [runs[1]]


def test_an_overview_has_only_what_a_user_may_see(api: Served) -> None:
    mine = api.finished("mine", token=ALICE)
    assert mine in [run["id"] for run in api.get("/overview", token=ALICE).json["runs"]]
    assert api.get("/overview", token=BOB).json["runs"] == []
    assert api.get(f"/overview?run={mine}", token=BOB).status == 404


def lines_of(api: Served, path: str, token: str = ADMIN) -> Iterator[str]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=SECONDS)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    try:
        while line := reply.readline():
            yield line.decode().rstrip("\n")
    finally:
        connection.close()


def test_one_stream_tells_of_all_trees_and_continues_where_it_was_cut(api: Served) -> None:
    assert api.get("/events?after=-1").status == 400
    before = api.finished("before")
    last = int(next(seq for seq in _ids(lines_of(api, f"/api/v1/runs/{before}/events"))))
    lines = lines_of(api, f"/api/v1/events?after={last}")
    theirs = api.finished("theirs", token=BOB)
    mine = api.finished("mine")
    records: list[str] = []
    for line in lines:
        if line.startswith("data: "):
            entry = json.loads(line[6:])["entry"]
            records.append(entry["tree"])
            if entry["tree"] == mine and entry["event"]["event"] == "Replied":
                break
    assert list(dict.fromkeys(records)) == [before, theirs, mine]
    only = lines_of(api, f"/api/v1/events?after={last}", token=BOB)
    trees = (json.loads(line[6:])["entry"]["tree"] for line in only if line.startswith("data: "))
    assert [next(trees) for _ in range(2)] == [theirs, theirs]


def _ids(lines: Iterator[str]) -> Iterator[str]:
    return (line[4:] for line in lines if line.startswith("id: "))


def test_a_browser_of_the_owner_stays_signed_in_over_a_restart(tmp_path: Path) -> None:
    path, now = str(tmp_path / "a" / "sessions.json"), [1_000.0]
    first = Keyring(clock=lambda: now[0])
    first.keep_sessions(SessionFile(path, lambda: now[0]))
    cookie = first.exchange(first.new_code(OWNER))
    assert cookie is not None and cookie not in Path(path).read_text()
    assert Path(path).stat().st_mode & 0o777 == 0o600
    later = Keyring(clock=lambda: 5.0)
    later.keep_sessions(SessionFile(path, lambda: now[0] + 3_600))
    assert later.of_cookie(cookie) == OWNER and later.of_cookie(cookie + "x") is None
    late = Keyring()
    late.keep_sessions(SessionFile(path, lambda: now[0] + 13 * 3_600))
    assert late.of_cookie(cookie) is None
    Path(path).write_text('{"zz": "soon"}')
    assert SessionFile(path).seconds_left() == {}
