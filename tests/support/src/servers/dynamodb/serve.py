"""Serves moto's DynamoDB on a port, without the web framework of `moto_server`, which takes longer
than the requests. It executes one request at a time, as the service does for an item: moto compares
and writes in separate steps, which two of its threads can interleave."""

import io
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from moto.core.request import Request
from moto.dynamodb.responses import DynamoHandler

one_at_a_time = threading.Lock()


class ServedRequest(Request):
    # The server adds the date.
    from_wsgi_server = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": sys.argv[1],
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": "application/x-amz-json-1.0",
        }
        for name, value in self.headers.items():
            environ["HTTP_" + name.upper().replace("-", "_")] = value
        request = ServedRequest(environ)
        with one_at_a_time:
            status, headers, text = DynamoHandler.dispatch(request, request.url, request.headers)
        text = text if isinstance(text, bytes) else text.encode()
        self.send_response(int(status))
        for name, value in headers.items():
            if name.lower() not in ("date", "server", "content-length", "status"):
                self.send_header(name, str(value))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
