"""The command line of a browser is in the list of processes: the code on it lets in the browser of
the user who opened it, and not whoever reads that list first."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from retinue.host import socket_peer
from retinue.host.socket_peer import is_other_user
from tests.cli.private_home import PrivateHome
from tests.waiting import SECONDS

NOBODY = 65534


@contextmanager
def connected(address: str, user: int) -> Iterator[socket.socket]:
    """A connection of this user: a socket belongs to who has made it."""
    url = urlsplit(address)
    assert url.hostname is not None
    me = os.geteuid()
    os.seteuid(user)
    try:
        line = socket.socket(socket.AF_INET if ":" not in url.hostname else socket.AF_INET6)
    finally:
        os.seteuid(me)
    with line:
        line.settimeout(SECONDS)
        line.connect((url.hostname, url.port))
        yield line


def asked(address: str, user: int, cookie: str = "") -> tuple[int, str]:
    """The status, and the cookie that is set."""
    url = urlsplit(address)
    with connected(address, user) as line:
        head = f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nCookie: {cookie}\r\n"
        line.sendall(f"{head}\r\n".encode())
        reply = line.recv(1 << 16).decode()
    cookie_header = re.search(r"(?i)set-cookie: ([^;]+)", reply)
    return int(reply.split()[1]), cookie_header[1] if cookie_header is not None else ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_code_on_a_command_line_lets_in_no_other_user(tmp_path: Path) -> None:
    browser, path = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {path}\n')
    browser.chmod(0o755)
    home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="20", BROWSER=str(browser))
    try:
        home.run("dashboard")
        address = home.until(lambda: path.exists() and path.read_text())
        assert asked(address, NOBODY)[0] == 403
        status, cookie = asked(address, os.getuid())
        assert status == 303 and cookie, "the code was not used up"
        assert asked(address, os.getuid())[0] == 401
        page = address.partition("?")[0]
        # A browser sends a cookie to every port of a host, so another user's server could get it.
        assert asked(page, os.getuid(), cookie)[0] == 200
        assert asked(page, NOBODY, cookie)[0] == 401
        assert asked(page, os.getuid(), cookie.replace("own.", ""))[0] == 401
        printed = home.run("dashboard", "--no-open").stdout.strip()
        status, cookie = asked(printed, NOBODY)
        assert status == 303, "its person has passed it on"
        assert asked(page, NOBODY, cookie)[0] == 200
    finally:
        home.run("host", "stop")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_user_of_a_connection_is_found(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("this machine has no such address")
    text = f"[{host}]" if ":" in host else host
    with listener, connected(f"http://{text}:{listener.getsockname()[1]}", os.geteuid()) as line:
        client, server = line.getsockname()[:2], line.getpeername()[:2]
        assert not is_other_user(client, server)
        if os.getuid():
            monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
            assert is_other_user(client, server)
            assert not is_other_user(server, client), "the other end of it is not asked about"


def test_a_connection_that_the_system_does_not_know_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four, six = tmp_path / "tcp", tmp_path / "tcp6"
    head = "sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode\n"
    rest = "01 0:0 0:0 0 4000000 0 1\n"
    four.write_text(f"{head}0: {socket_peer._as_listed('127.0.0.1', 80, 4)} 0:0 {rest}")
    mapped = [socket_peer._as_listed("127.0.0.1", port, 16) for port in (9, 8)]
    six.write_text(f"{head}0: {mapped[0]} {mapped[1]} {rest}")
    monkeypatch.setattr(socket_peer, "TABLES", (str(four), str(six)))
    near = "127.0.0.1"
    assert is_other_user((near, 9), (near, 8)), "a socket of IPv6 with an address of IPv4"
    assert not is_other_user((near, 80), (near, 8))
    assert not is_other_user(None, (near, 8)) and not is_other_user(("testclient", 1), (near, 8))
    monkeypatch.setattr(socket_peer, "TABLES", (str(tmp_path / "none"), str(tmp_path / "none")))
    assert not is_other_user((near, 9), (near, 8))
