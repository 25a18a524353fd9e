"""`retinue dashboard`: an address that lets one browser in, whatever the host was doing before."""

from __future__ import annotations

import http.client
import re
from pathlib import Path
from urllib.parse import urlsplit

from tests.cli.private_home import PrivateHome
from tests.waiting import SECONDS


def asked(address: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.netloc, timeout=SECONDS)
    try:
        connection.request("GET", f"{url.path}?{url.query}".rstrip("?"), headers=headers)
        reply = connection.getresponse()
        values = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, values, reply.read()
    finally:
        connection.close()


def test_the_address_lets_one_browser_in_and_the_page_of_a_run_opens(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="20")
    try:
        assert "dashboard" not in home.run("run", "where is add?").stderr
        first = home.run("dashboard", "--no-open").stdout.strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?code=[\w-]{43}", first)
        status, headers, _ = asked(first)
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert asked(first)[0] == 401
        page = asked(first.partition("?")[0], cookie=cookie.partition(";")[0])
        assert page[0] == 200 and b"page/app.mjs" in page[2]
        place = first.partition("/?")[0]
        output = home.run("run", "--model", "offline/explorer", "where is add?").stderr
        link = re.search(rf" · dashboard ({re.escape(place)}/r/[0-9a-f-]{{36}})$", output, re.M)
        assert link is not None, output
        assert asked(link[1], cookie=cookie.partition(";")[0])[0] == 200
        second = home.run("dashboard", "--no-open", "latest").stdout.strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/r/[0-9a-f-]{36}\?code=[\w-]{43}", second)
        assert urlsplit(second).port == urlsplit(first).port
    finally:
        home.run("host", "stop")
