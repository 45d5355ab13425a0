"""Serving: on this machine, one page, and nothing for strangers."""

from __future__ import annotations

import socket
from http.client import HTTPConnection
from threading import Thread

import pytest

from warpfrag.explorer import build_page
from warpfrag.explorer.serve import CannotServe, Server


@pytest.fixture
def server():
    with Server() as started:
        thread = Thread(target=started.serve_forever)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def ask(server, path="/", host=None, method="GET"):
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content.decode()


def test_the_page_is_served(server):
    answer, content = ask(server)

    assert server.address == f"http://127.0.0.1:{server.server_port}/"
    assert server.server_address[0] == "127.0.0.1"
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert content == build_page()
    assert ask(server, host=f"localhost:{server.server_port}")[0].status == 200


@pytest.mark.parametrize("path", ["/favicon.ico", "/../pyproject.toml", "/page/main.js"])
def test_nothing_else_is_served(server, path):
    answer, content = ask(server, path)

    assert answer.status == 404
    assert "there is one page, at /" in content


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1"])
def test_a_page_that_goes_by_another_name_is_refused(server, host):
    answer, content = ask(server, host=host)

    assert answer.status == 403
    assert "<title>warpfrag explorer</title>" not in content


def test_nothing_can_be_sent(server):
    assert ask(server, method="POST")[0].status == 501


def test_a_port_in_use_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotServe, match=rf"cannot serve on port {port} of 127\.0\.0\.1 .*; 0 takes a free one"):
            Server(port)
