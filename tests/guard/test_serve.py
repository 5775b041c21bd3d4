"""`oodshape serve` as a user starts it: asked over HTTP, attacked, watched, stopped; and it never needs torch."""

from __future__ import annotations

import base64
import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import oodshape
from bombs import png
from commands import call
from oodshape import Guard, Watch

for library in ("onnx", "onnxscript", "onnxruntime", "fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(library)
httpx = pytest.importorskip("httpx")

MODEL = "zoo:digits-convnet"
WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numba", "pandas", "sklearn", "matplotlib"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
from oodshape.cli import main
main()
"""


class Server(NamedTuple):
    """A running service."""

    process: subprocess.Popen[str]
    address: str
    port: int
    log: Path

    def events(self, name: str) -> list[dict]:
        said = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [each for each in said if each["event"] == name]

    def metrics(self) -> dict[str, float]:
        """By name and labels; every line is held to the format."""
        found = {}
        for line in httpx.get(f"{self.address}/metrics").text.splitlines():
            assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{(\w+=\"[^\"]*\",?)+\})? \S+", line), line
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(file: Path, log: Path, *words: str) -> Server:
    port = free_port()
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", str(file), "--port", str(port), *words]
    environment = {"PYTHONPATH": str(Path(oodshape.__file__).parents[1]), "PATH": "/usr/bin:/bin"}
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True)
    server = Server(process, f"http://127.0.0.1:{port}", port, log)
    for _ in range(600):
        try:
            if httpx.get(f"{server.address}/ready", timeout=5).status_code == 200:
                return server
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def stopped(server: Server) -> int:
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
    return server.process.wait(30)


@pytest.fixture(scope="module")
def exported(guard: Guard, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "guarded.onnx"
    guard.export(path, MODEL, images=digits / "val")
    return path


@pytest.fixture(scope="module")
def server(exported: Path) -> Iterator[Server]:
    words = ("--max-bytes", "200000", "--max-images", "8", "--max-seconds", "2", "--max-pixels", "1000000")
    words += ("--workers", "1")
    made = started(exported, exported.with_name("log.jsonl"), *words)
    yield made
    stopped(made)


def pictures(folder: Path, count: int) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())[:count]]


def sent(server: Server, images: list[bytes]) -> httpx.Response:
    return httpx.post(f"{server.address}/predict", files=[("images", (f"{i}.png", x)) for i, x in enumerate(images)])


def test_it_answers_like_the_guard(server: Server, guard: Guard, digits: Path) -> None:
    images = [*pictures(digits / "test", 3), *pictures(digits / "letters", 3)]
    rows = list(guard.score(images, MODEL, progress=False))
    text = {"images": [base64.b64encode(image).decode() for image in images]}
    for answer in (sent(server, images), httpx.post(f"{server.address}/predict", json=text)):
        assert answer.status_code == 200, answer.text
        for got, row in zip(answer.json()["images"], rows, strict=True):
            assert (got["class"], got["accepted"]) == (row.label, row.accepted)
            assert got["score"] == pytest.approx(row.score, abs=1e-3)
            assert got["p_value"] == pytest.approx(row.p_value, abs=0.02)
    about = httpx.get(server.address).json()
    assert about["classes"] == list(guard.about.names)
    assert about["calibration_images"] == len(guard.detector.calibration)


def test_counts_are_exact(server: Server, digits: Path) -> None:
    images, before = [*pictures(digits / "letters", 5), b"no image"], server.metrics()
    rows = sent(server, images).json()["images"]
    assert [row["accepted"] for row in rows].count(None) == 1
    assert rows[-1] == {"name": "5.png", "accepted": None, "error": "is no image that Pillow can read"}
    after = server.metrics()
    grown = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
    assert grown["oodshape_images_total"] == 5
    assert grown["oodshape_unreadable_total"] == 1
    assert grown['oodshape_requests_total{status="200"}'] == 1
    assert grown["oodshape_request_seconds_count"] == 1
    rejected = {row["class"] for row in rows if row["accepted"] is False}
    assert rejected
    assert {name for name in grown if "rejected" in name} == {
        f'oodshape_rejected_total{{class="{name}"}}' for name in rejected
    }
    assert server.events("predict")[-1]["unreadable"] == 1


def raw(server: Server, data: bytes, *, wait: float = 10) -> int:
    """The status that the service answers to these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as line:
        with suppress(OSError):  # it may have answered already, and hung up
            line.sendall(data)
        return int(line.recv(4096).split()[1])


def test_hostile_uploads_are_refused_and_the_next_is_answered(server: Server, digits: Path, tmp_path: Path) -> None:
    (good,) = pictures(digits / "test", 1)
    url = f"{server.address}/predict"
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
    multipart = head + b"Content-Type: multipart/form-data; boundary=x\r\n"
    chunked = multipart + b"Transfer-Encoding: chunked\r\n\r\n"
    form = {"content-type": "multipart/form-data; boundary=x"}
    attacks = {
        "bomb": (400, lambda: sent(server, [png(tmp_path / "bomb.png", 20_000, 20_000).read_bytes()]).status_code),
        "thin": (400, lambda: sent(server, [png(tmp_path / "thin.png", 60_000, 2).read_bytes()]).status_code),
        "truncated": (400, lambda: sent(server, [good[:60]]).status_code),
        "empty": (400, lambda: sent(server, [b""]).status_code),
        "no form": (400, lambda: httpx.post(url, content=b"garbage", headers=form).status_code),
        "cut form": (400, lambda: httpx.post(url, content=b"--x\r\nContent-", headers=form).status_code),
        "other field": (400, lambda: httpx.post(url, data={"a": "b"}, files={"c": b""}).status_code),
        "no boundary": (400, lambda: httpx.post(url, headers={"content-type": "multipart/form-data"}).status_code),
        "no JSON": (400, lambda: httpx.post(url, content=b"[" * 90_000, headers=JSON).status_code),
        "other JSON": (400, lambda: httpx.post(url, json={"images": 3}).status_code),
        "no base64": (400, lambda: httpx.post(url, json={"images": ["%%"]}).status_code),
        "no image": (400, lambda: httpx.post(url, json={"images": []}).status_code),
        "wrong type": (415, lambda: httpx.post(url, content=good, headers={"content-type": "image/png"}).status_code),
        "nothing": (415, lambda: httpx.post(url).status_code),
        "too many": (413, lambda: sent(server, [good] * 9).status_code),
        "large": (413, lambda: sent(server, [bytes(200_001)]).status_code),
        "said to be large": (413, lambda: raw(server, multipart + b"Content-Length: 999999999\r\n\r\n--x")),
        "endless": (413, lambda: raw(server, chunked + b"10000\r\n" + (bytes(0x10000) + b"\r\n10000\r\n") * 8)),
        "slow": (408, lambda: raw(server, chunked + b"1\r\n-\r\n")),
        "no path": (404, lambda: httpx.get(f"{server.address}/admin").status_code),
        "other method": (405, lambda: httpx.get(url).status_code),
    }
    for name, (status, attack) in attacks.items():
        assert attack() == status, name
        assert sent(server, [good]).status_code == 200, name
    assert server.process.poll() is None
    assert not server.events("failed")


JSON = {"content-type": "application/json"}


def test_no_body_makes_it_fail(server: Server, digits: Path) -> None:
    """Damaged forms and JSON of every kind get an answer below 500."""
    chance, (good,) = random.Random(0), pictures(digits / "test", 1)
    form = b'--x\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n' + good + b"\r\n--x--\r\n"
    text = json.dumps({"images": [base64.b64encode(good).decode()]}).encode()
    with httpx.Client() as client:
        for number in range(120):
            whole, kind = ((form, "multipart/form-data; boundary=x"), (text, "application/json"))[number % 2]
            data = bytearray(whole)
            for _ in range(chance.randint(1, 6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            cut = bytes(data[: chance.randrange(len(data))] if number % 3 == 0 else data)
            answer = client.post(f"{server.address}/predict", content=cut, headers={"content-type": kind})
            assert answer.status_code in (200, 400), (number, answer.text)


def test_the_page_for_machines_is_there(server: Server) -> None:
    page = httpx.get(f"{server.address}/openapi.json").json()
    assert set(page["paths"]) == {"/", "/predict", "/health", "/ready", "/metrics"}
    example = page["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["example"]
    answer = httpx.post(f"{server.address}/predict", json=example)
    assert "network takes 16 x 16 alone" in answer.json()["detail"]  # one pixel
    assert httpx.get(f"{server.address}/health").json() == {"status": "alive"}


def test_two_workers_share_a_watch_and_stop_cleanly(exported: Path, digits: Path, tmp_path: Path) -> None:
    state = tmp_path / "watch.safetensors"
    server = started(exported, tmp_path / "log.jsonl", "--workers", "2", "--watch", "--state", str(state))
    try:
        assert server.metrics()["oodshape_watch_alarm"] == 0
        letters = pictures(digits / "letters", 30)
        with ThreadPoolExecutor(2) as threads:
            assert {answer.status_code for answer in threads.map(lambda _: sent(server, letters), range(10))} == {200}
        said = server.metrics()
        refused = call("serve", str(exported), "--port", "0", "--watch", "--state", str(state), cwd=tmp_path)
    finally:
        status = stopped(server)
    assert status == 0, server.log.read_text()
    assert refused.stderr.startswith("error: another service uses")
    assert refused.stderr.count("\n") == 1
    assert said["oodshape_images_total"] == said["oodshape_watch_images"] == 300
    assert said["oodshape_watch_alarm"] == 1
    assert len(server.events("shift")) == len(server.events("stopped")) == 1
    kept = Watch.load(state)
    assert (kept.seen, kept.alarm, kept.delta) == (300, True, 0.01)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "log.jsonl",
        "watch.safetensors",
        "watch.safetensors.lock",
    ]


def test_refusals_are_one_line(exported: Path, guard: Guard, digits: Path, tmp_path: Path) -> None:
    per_class = guard.calibrate(digits / "val", MODEL, alpha=0.2, per_class=True, progress=False)
    per_class.export(tmp_path / "per_class.onnx", MODEL, images=digits / "val")
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, said in (
            ((str(exported), "--port", port), "give another --host or --port"),
            (("none.onnx",), "there is no file none.onnx"),
            ((str(tmp_path / "per_class.onnx"), "--watch"), "it has a threshold per class"),
            ((str(exported), "--state", "watch.safetensors"), "give both, or neither"),
        ):
            done = call("serve", *words, cwd=tmp_path)
            assert done.returncode == 2
            assert said in done.stderr
            assert done.stderr.count("\n") == 1
