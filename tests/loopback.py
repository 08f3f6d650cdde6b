"""A handler of HTTP requests, served on this machine alone, also by TLS."""

import datetime
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa


class Handler(BaseHTTPRequestHandler):
    """One that prints nothing."""

    def answer(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer, whose length is right unless the headers tell another."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "CONNECT":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(
    handler: type[BaseHTTPRequestHandler], host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve it; its address without a slash at the end."""
    server = ThreadingHTTPServer((host, 0), handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"{'https' if context else 'http'}://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def secured(file: Path, days: tuple[int, int] = (-1, 1)) -> ssl.SSLContext:
    """TLS with a key and a certificate, which are written into a file."""
    file.write_text("".join(key_and_certificate(days)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def key_and_certificate(days: tuple[int, int] = (-1, 1)) -> tuple[str, str]:
    """A new RSA key and a certificate that it signed itself, valid from and to that many days from now, both PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "practice")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now + datetime.timedelta(days=days[0]))
    builder = builder.add_extension(address, critical=False)
    certificate = builder.not_valid_after(now + datetime.timedelta(days=days[1])).sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode()
