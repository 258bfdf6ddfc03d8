"""Roundup behind a plain WSGI server: its own refuses to run as root, which a test may be.

`python -m tests.connectors.outside.tracker HOME PORT`
"""

import sys
from wsgiref.simple_server import make_server

from roundup.cgi.wsgi_handler import RequestDispatcher

make_server("127.0.0.1", int(sys.argv[2]), RequestDispatcher(sys.argv[1])).serve_forever()
