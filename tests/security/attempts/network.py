"""Out through the network and through sockets."""

import os
import socket
from typing import Any

from .base import attempt, connect, each, facts


@attempt
def connect_by_tcp() -> Any:
    return connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["tcp"]))


@attempt
def connect_by_tcp_6() -> Any:
    return connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", facts["tcp"]))


@attempt
def send_by_udp_outside() -> Any:
    return connect(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9))


@attempt
def connect_to_an_abstract_socket() -> Any:
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + facts["abstract"])


@attempt
def connect_to_a_socket_file() -> Any:
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, facts["socket"])


@attempt
def connect_to_well_known_sockets() -> Any:
    paths = [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/dbus/system_bus_socket",
        "/run/containerd/containerd.sock",
    ]
    paths += [os.environ.get("SSH_AUTH_SOCK", "/run/none"), "/run/user/0/bus"]
    return each(paths, lambda p: connect(socket.AF_UNIX, socket.SOCK_STREAM, p))


@attempt
def talk_to_the_hypervisor() -> Any:
    socket.socket(40, socket.SOCK_STREAM)
    return True


@attempt
def use_raw_sockets() -> Any:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    return True


@attempt
def use_packet_sockets() -> Any:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)
    return True


@attempt
def use_kernel_cryptography() -> Any:
    socket.socket(38, socket.SOCK_SEQPACKET)
    return True


@attempt
def resolve_a_name() -> Any:
    return socket.getaddrinfo("example.com", 80)
