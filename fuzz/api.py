"""The service against its own OpenAPI page: schemathesis makes requests of every kind, and none may be a 5xx.

    python fuzz/api.py GUARDED.ONNX [--examples 200] [--seed 1] [--schemathesis PROGRAM]

schemathesis is no dependency: pip install schemathesis, here or in an environment of its own (--schemathesis names its
program then). Answers are held to the page too: status, content type and schema.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def ready(address: str) -> bool:
    """Whether the service answers."""
    try:
        return bool(urlopen(f"{address}/ready", timeout=5).status == 200)
    except OSError:
        return False


def main() -> None:
    """Start the service, let schemathesis ask it, and see that it still lives and stops."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("guarded")
    parser.add_argument("--examples", default="200")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--schemathesis", default=shutil.which("schemathesis") or "schemathesis")
    words = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    code = "from oodshape.cli import main; main()"
    told = ["serve", words.guarded, "--port", str(port), "--watch", "--max", "seconds=5"]
    with subprocess.Popen([sys.executable, "-c", code, *told], stdout=subprocess.DEVNULL) as server:
        try:
            while not ready(address):
                if server.poll() is not None:
                    sys.exit("the service ended before it was ready")
                time.sleep(0.2)
            asked = ["run", f"{address}/openapi.json", "--checks", CHECKS, "-n", words.examples, "--seed", words.seed]
            failed = subprocess.run([words.schemathesis, *asked], check=False).returncode
            alive = ready(address)
            server.send_signal(signal.SIGTERM)
            status = server.wait(60)
        finally:
            server.kill()
    print(f"schemathesis {'found something' if failed else 'found nothing'}; alive: {alive}; stopped with {status}")
    sys.exit(bool(failed or not alive or status))


if __name__ == "__main__":
    main()
