"""Kill `serve --watch`: its state is read again, it forgets at most the last seconds, and no process is left."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

from kill_tasks import GUARD, orphans, run
from oodshape import Watch

KILLS = 5
SAVED_AFTER = 8.0  # seconds after which what was scored must be in the state


def killed_service(home: Path) -> list[str]:
    """A service that watches is killed:"""
    folder, wrong, chance = home / "served", list[str](), random.Random(0)
    words = ("export", *GUARD, "--out", "guarded.onnx", "--images", "../inputs/test", "--quiet")
    if run(words, folder):
        return ["the guard was not exported"]
    images, state, safe = sorted((home / "inputs" / "test").iterdir()), folder / "state.safetensors", 0
    for kill in range(KILLS):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        code = "from oodshape.cli import main; main()"
        asked = ["serve", "guarded.onnx", "--port", str(port), "--watch", "--state", state.name]
        with subprocess.Popen(
            [sys.executable, "-c", code, *asked], cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True
        ) as service:
            until = time.monotonic() + 60
            while _status(port, "GET", "/ready") != 200 and time.monotonic() < until and service.poll() is None:
                time.sleep(0.2)
            sent = sum(_status(port, "POST", "/predict", image.read_bytes()) == 200 for image in images[:20])
            slept = chance.uniform(0, 1.5 * SAVED_AFTER)
            time.sleep(slept)
            service.send_signal(signal.SIGKILL)
            service.wait()
        wrong += [f"kill {kill + 1}: the process {each} is still there" for each in orphans(service.pid)]
        if sent != 20:
            wrong.append(f"kill {kill + 1}: {sent} of 20 images were scored")
        seen = Watch.load(state).seen if state.is_file() else 0
        least = safe + (sent if slept >= SAVED_AFTER else 0)
        if not least <= seen <= safe + sent:
            wrong.append(f"kill {kill + 1} after {slept:.1f} s: the state has {seen} images, at least {least} wanted")
        safe = seen
    return wrong


def _status(port: int, verb: str, path: str, image: bytes | None = None) -> int:
    body = None
    headers = {}
    if image is not None:
        head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'
        body, headers = head + image + b"\r\n--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(verb, path, body, headers)
        return connection.getresponse().status
    except OSError:
        return 0
