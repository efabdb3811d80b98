"""HTTP on the loopback interface: replies are written by a function of the test."""

import random
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_RANDOM = random.SystemRandom()  # seeds of tests do not send two processes to one port


def free_port(count=1):
    """The first of `count` loopback ports in a row that nothing listens on.

    They lie below 32,768, from where the kernel gives ports to clients: a connection of another test takes none of
    them between this look and the start of the server.
    """
    while True:
        first = _RANDOM.randrange(20_000, 32_000)
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def send(handler, body, status=200, announced=None, **headers):
    """A reply, of JSON unless its headers say otherwise; an underscore in a header's name stands for a hyphen."""
    handler.send_response(status)
    for name, value in {"Content_Type": "application/json", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body) if announced is None else announced))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def certificate(folder):
    """A file with a key and a certificate of 127.0.0.1 that it has signed itself."""
    file, key = folder / "certificate.pem", folder / "key.pem"
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    name = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", file]
    subprocess.run(["openssl", "req", *options.split(), *name], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + key.read_bytes())
    return file


@contextmanager
def serving(reply, certificate=None):
    """Has `reply` answer every request, given its handler and its body; gives the address until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body is not held back until the client has confirmed its headers

        def answer(self):
            try:
                reply(self, self.body())
            except OSError:  # the client went away, as it may
                self.close_connection = True

        do_GET = do_HEAD = do_POST = do_PUT = answer

        def body(self):
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            if not isinstance(sys.exc_info()[1], OSError):  # a client that was killed is no fault of the server
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
