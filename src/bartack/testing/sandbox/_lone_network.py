"""A program: makes the loopback interface of its network ready, listens there, and hands the socket over.

It is started in a network namespace of its own, by its path, and imports only the standard library. It holds the namespace until
the other end of its socket closes. Its arguments are the descriptor of that socket and the port. Read ``_network.py`` next.
"""

import fcntl
import socket
import struct
import sys

_GET_FLAGS = 0x8913
_SET_FLAGS = 0x8914
_UP = 1


def main() -> None:
    """Run the program."""
    parent = socket.socket(fileno=int(sys.argv[1]))
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack_from("h", fcntl.ioctl(any_socket, _GET_FLAGS, request), 16)[0]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))
    with socket.create_server(("127.0.0.1", int(sys.argv[2])), backlog=128) as listener:
        socket.send_fds(parent, [b"1"], [listener.fileno()])
    parent.recv(1)


if __name__ == "__main__":
    main()
