"""Serving: on this machine, one page, and nothing for strangers."""

from __future__ import annotations

import re
import socket
import struct
from http.client import HTTPConnection, RemoteDisconnected
from threading import Event, Thread

import pytest

from warpfrag.errors import ServerError
from warpfrag.viz.explorer import build_page
from warpfrag.viz.explorer.page_server import PageHandler, PageServer


@pytest.fixture
def server():
    with PageServer() as started:
        thread = Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01})
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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LocalHost"])
def test_on_the_port_of_http_an_address_has_no_port(server, host):
    server.server_port, port = 80, server.server_port  # to take port 80 itself, one must be root
    connection = connected(port)
    connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    assert server.address == "http://127.0.0.1/"
    assert received(connection).startswith(b"HTTP/1.0 200 OK\r\n")
    refused = connected(port)
    refused.sendall(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert received(refused).startswith(b"HTTP/1.0 403 ask for http://127.0.0.1/\r\n")


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def received(connection):
    """Everything until the server hangs up."""
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize("said", [b"", b"GET", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x"])
def test_whoever_says_no_more_is_dropped(server, monkeypatch, capfd, said):
    assert 0 < PageHandler.timeout <= 60
    monkeypatch.setattr(PageHandler, "timeout", 0.05)
    connection = connected(server.server_port)
    connection.sendall(said)

    assert received(connection) == b""
    assert capfd.readouterr().err == ""


@pytest.fixture
def ended(server, monkeypatch):
    """An event that says when the server has ended with a request."""
    event = Event()
    monkeypatch.setattr(
        server, "shutdown_request", lambda sent: (PageServer.shutdown_request(server, sent), event.set())
    )
    return event


@pytest.mark.parametrize("hangs_up", [False, True])
def test_whoever_takes_nothing_or_hangs_up_is_dropped_quietly(server, monkeypatch, capfd, ended, hangs_up):
    monkeypatch.setattr(PageHandler, "timeout", 0.05)
    monkeypatch.setattr(server, "page", bytes(1 << 26))  # more than the sockets hold back
    connection = connected(server.server_port)
    connection.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{server.server_port}\r\n\r\n".encode())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
    if hangs_up:
        connection.close()

    assert ended.wait(30)
    assert hangs_up or len(received(connection)) < 1 << 26
    assert capfd.readouterr().err == ""


def test_a_fault_in_an_answer_is_one_line(server, monkeypatch, capfd, ended):
    monkeypatch.setattr(server, "page", None)
    with pytest.raises(RemoteDisconnected):
        ask(server)

    assert ended.wait(30)
    error = capfd.readouterr().err
    assert error == "warpfrag: a request failed: TypeError: \"object of type 'NoneType' has no len()\"\n"


@pytest.mark.parametrize(
    "sent", [b"\0" * 100, b"x" * 70_000, b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 500 + b"\r\n"]
)
def test_what_is_no_request_is_answered(server, capfd, sent):
    connection = connected(server.server_port)
    connection.sendall(sent + b"\r\n")

    assert re.search(rb"Error code: (4\d\d|505)", received(connection))
    assert capfd.readouterr().err == ""


def test_nothing_can_be_sent(server):
    assert ask(server, method="POST")[0].status == 501


def test_a_port_in_use_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=rf"cannot serve on port {port} of 127\.0\.0\.1 .*; 0 takes a free one"):
            PageServer(port)


@pytest.mark.parametrize("port", ["80", 1.5, None, True, 70_000, -1])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(ServerError, match="port"):
        PageServer(port)
