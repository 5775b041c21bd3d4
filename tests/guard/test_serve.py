"""`oodshape serve` as a user starts it: asked over HTTP, attacked, watched, stopped; and it never needs torch."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import PIL.Image
import pytest
from filelock import lock_descriptor, unlock_descriptor

import oodshape
from axe import violations
from bombs import png
from browser import Opened
from commands import call
from oodshape import Guard, Watch
from oodshape.guard.service.body import parse_images
from oodshape.guard.service.settings import Settings
from oodshape.guard.service.worker import Scorer
from oodshape.images.decode.limits import Limits

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
        for line in httpx.get(f"{self.address}/metrics", headers=TOKEN).text.splitlines():
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
    words = ("--max", "bytes=200000,images=8,seconds=2,requests=4", "--limits", "pixels=1000000", "--workers", "1")
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
    assert about["classes"] == list(guard.about.classes)
    assert about["guarantee"] == guard.guarantee


def test_counts_are_exact(server: Server, digits: Path) -> None:
    images, before = [*pictures(digits / "letters", 5), b"no image"], server.metrics()
    rows = sent(server, images).json()["images"]
    assert [row["accepted"] for row in rows].count(None) == 1
    assert rows[-1] == {"name": "5.png", "accepted": None, "error": "is not a readable image"}
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
        "redirect": (404, lambda: httpx.post(f"{url}/", headers={"host": "evil.example"}).status_code),
    }
    for name, (status, attack) in attacks.items():
        assert attack() == status, name
        assert sent(server, [good]).status_code == 200, name
    assert server.process.poll() is None
    assert not server.events("failed")


JSON = {"content-type": "application/json"}


def test_forms_are_read_byte_by_byte() -> None:
    """Names and data come back as another library sent them, near-boundaries and empty files included."""
    chance = random.Random(0)
    for _ in range(200):
        pieces = (b"\r\n", b"--", b"x", b"\r\n--", b"\0\xff", b"--x", b"\r\n\r\n", b'"')
        names = [f'é {i};"a.png' for i in range(chance.randint(1, 4))]
        files = [(name, b"".join(chance.choices(pieces, k=chance.randrange(9)))) for name in names]
        request = httpx.Request("POST", "http://x", files=[("images", file) for file in files])
        found = parse_images(request.headers["content-type"], bytearray(request.read()), 4)
        assert [each.data for each in found] == [data for _, data in files]
        assert [each.name for each in found] == [name.replace('"', "%22") for name, _ in files]


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


def test_a_browser_gets_a_page_to_try_it(server: Server, digits: Path, browser: Any) -> None:
    shown = Opened(browser, server.address)
    policy = shown.page.evaluate(
        "fetch('/', { headers: { Accept: 'text/html' } }).then((a) => a.headers.get('content-security-policy'))"
    )
    assert policy.startswith("default-src 'none'; connect-src 'self'")
    assert "calibration images" in shown.page.inner_text("#about")
    files = [str(sorted((digits / name).iterdir())[0]) for name in ("test", "letters")]
    (digits / "broken.png").write_text("no image")
    shown.page.set_input_files("#files", [*files, str(digits / "broken.png")])
    shown.page.locator("#found .failed", has_text="broken.png").wait_for()
    rows = sent(server, [Path(file).read_bytes() for file in files]).json()["images"]
    lines = shown.page.locator("#found li").all()[:0:-1]  # the newest is on top
    for line, row in zip(lines, rows, strict=True):
        text = line.inner_text()
        assert text.startswith("accepted" if row["accepted"] else "rejected")
        assert f"predicted: {row['class']}" in text
        assert float(re.search(r"p-value\s+(\S+)", text)[1]) == pytest.approx(row["p_value"], rel=0.01)
    assert all(url.startswith((server.address, "blob:")) for url in shown.requests), shown.requests
    assert [said for said in shown.said if "400" not in said] == []
    shown.context.close()
    for scheme in ("light", "dark"):
        assert violations(browser, server.address, 390, scheme) == []


def test_the_page_for_machines_is_there(server: Server) -> None:
    page = httpx.get(f"{server.address}/openapi.json").json()
    assert set(page["paths"]) == {"/", "/predict", "/health", "/ready", "/metrics"}
    example = page["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["example"]
    answer = httpx.post(f"{server.address}/predict", json=example)
    assert "network only accepts 16 x 16" in answer.json()["detail"]  # one pixel
    assert httpx.get(f"{server.address}/health").json() == {"status": "alive"}


def test_two_workers_share_a_watch_and_stop_cleanly(exported: Path, digits: Path, tmp_path: Path) -> None:
    state, link = tmp_path / "watch.safetensors", tmp_path / "link"
    link.symlink_to(state)
    server = started(exported, tmp_path / "log.jsonl", "--workers", "2", "--watch", "--state", str(state))
    try:
        assert server.metrics()["oodshape_watch_alarm"] == 0
        letters = pictures(digits / "letters", 30)
        with ThreadPoolExecutor(2) as threads:
            assert {answer.status_code for answer in threads.map(lambda _: sent(server, letters), range(10))} == {200}
        said = server.metrics()
        refused = call("serve", str(exported), "--port", "0", "--watch", "--state", str(link), cwd=tmp_path)
    finally:
        status = stopped(server)
    assert status == 0, server.log.read_text()
    assert refused.stderr.startswith("error: another process uses")
    assert refused.stderr.count("\n") == 1
    assert said["oodshape_images_total"] == said["oodshape_watch_images"] == 300
    assert said["oodshape_watch_alarm"] == 1
    assert len(server.events("shift")) == len(server.events("stopped")) == 1
    kept = Watch.load(state)
    assert (kept.seen, kept.alarm, kept.delta) == (300, True, 0.01)
    names = ["link", "log.jsonl", "watch.safetensors", "watch.safetensors.lock"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def statuses(server: Server) -> dict[str, float]:
    return {name: value for name, value in server.metrics().items() if name.startswith("oodshape_requests_total")}


def hold(server: Server, data: bytes, count: int, lines: ExitStack) -> list[socket.socket]:
    """Connections that send this and then wait."""
    made = [lines.enter_context(socket.create_connection(("127.0.0.1", server.port), 10)) for _ in range(count)]
    for line in made:
        line.sendall(data)
    return made


SLOW = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"


def test_slow_bodies_give_way_to_others(server: Server, digits: Path) -> None:
    with ExitStack() as lines:
        slow = hold(server, SLOW, 4, lines)
        time.sleep(0.3)
        assert sent(server, pictures(digits / "test", 1)).status_code == 200
        assert b" 503 " in slow[0].recv(100)


def test_half_and_endless_headers_are_cut(server: Server) -> None:
    with ExitStack() as lines:
        (half,) = hold(server, b"GET /health HTTP/1.1\r\nHost: x\r\n", 1, lines)
        assert half.recv(100) == b""  # after the seconds of --max
        (endless,) = hold(server, b"GET /health HTTP/1.1\r\n", 1, lines)
        with suppress(OSError):
            for _ in range(100):
                endless.sendall(b"A: " + b"a" * 100_000 + b"\r\n")
            raise AssertionError("10 MB of headers were accepted")


def test_small_chunks_and_large_headers_are_refused(server: Server) -> None:
    """Each chunk costs time, even where nobody reads the body: 3 MB of them took 20 seconds, without /health."""
    chunked = b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    start, other = time.monotonic(), b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with ExitStack() as lines:
        for head in (b"POST /predict", b"GET /health", other + b"POST /predict"):
            (line,) = hold(server, head + chunked + b"\r\n", 1, lines)
            with suppress(ConnectionError):
                line.sendall(b"1\r\nx\r\n" * 500_000)
                while line.recv(1000):
                    pass
            assert httpx.get(f"{server.address}/health", timeout=2).status_code == 200
        assert time.monotonic() - start < 10
        for size, status in ((10_000, b" 200 "), (100_000, b" 400 ")):
            (line,) = hold(server, other[:-2] + b"A: " + b"a" * size + b"\r\n\r\n", 1, lines)
            assert status in line.recv(100)
        (line,) = hold(server, b"POST /predict" + chunked + b"\r\n" + b"1\r\n{\r\n" * 200 + b"0\r\n\r\n", 1, lines)
        assert b"application/json" in line.recv(1000)  # the service itself answers
    assert not server.events("failed")
    assert "Traceback" not in server.log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_client_that_hangs_up_is_no_failure(server: Server, digits: Path) -> None:
    """While its body arrives, and while it is scored, which would end with the seconds of --max."""
    whole = SLOW.replace(b"1000\r\n\r\n{", b"2\r\n\r\n{}")
    for data, pids in ((SLOW, []), (whole, scoring_processes(server))):
        before = statuses(server)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with ExitStack() as lines:
            hold(server, data, 1, lines)
            time.sleep(0.3)
        time.sleep(0.5)
        after = statuses(server)
        for pid in pids:
            with suppress(ProcessLookupError):  # it may have been replaced
                os.kill(pid, signal.SIGCONT)
        grown = {name for name in after if after[name] != before.get(name, 0)}
        assert grown == {'oodshape_requests_total{status="499"}'}
    assert sent(server, pictures(digits / "test", 1)).status_code == 200


def scoring_processes(server: Server) -> list[int]:
    """The children of the process that forks them."""
    below = [Path(f"/proc/{server.process.pid}")]
    for _ in range(2):
        below = [
            Path(f"/proc/{child}")
            for path in below
            for task in (path / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return [int(path.name) for path in below]


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_work_that_hangs_ends_with_its_request(server: Server, digits: Path) -> None:
    (good,), [pid] = pictures(digits / "test", 1), scoring_processes(server)
    restarts = server.metrics()["oodshape_worker_restarts"]
    os.kill(pid, signal.SIGSTOP)  # a decoder that never ends
    with ThreadPoolExecutor(4) as threads:
        stuck = [threads.submit(sent, server, [good]) for _ in range(4)]
        time.sleep(1)
        assert httpx.get(f"{server.address}/health", timeout=1).status_code == 200
        ready = httpx.get(f"{server.address}/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "overloaded"})
        full = sent(server, [good])
        assert (full.status_code, full.headers["retry-after"]) == (503, "1")
        assert {each.result().status_code for each in stuck} == {503}
    for _ in range(40):
        if sent(server, [good]).status_code == 200:
            break
    assert httpx.get(f"{server.address}/ready").status_code == 200
    assert scoring_processes(server) != [pid]
    assert server.metrics()["oodshape_worker_restarts"] == restarts + 1
    os.kill(scoring_processes(server)[0], signal.SIGKILL)  # while it has nothing to do: no image is to blame
    assert sent(server, [good, good]).status_code == 200


def test_slow_images_are_decoded_by_one_process_at_a_time(exported: Path, digits: Path, tmp_path: Path) -> None:
    request = httpx.Request("POST", "http://x", files=[("images", image) for image in pictures(digits / "test", 3)])
    kind, body, lock = request.headers["content-type"], bytearray(request.read()), tmp_path / "lock"
    scorer = Scorer(Settings(str(exported)), str(lock))
    with closing(scorer.lock), lock.open("ab") as other:
        assert lock_descriptor(other.fileno(), blocking=False)
        assert len(scorer.score(kind, body, 0)["rows"]) == 3
        assert not scorer.score(kind, body, 0, slow=True)["rows"]
        unlock_descriptor(other.fileno())
        assert len(scorer.score(kind, body, 1, slow=True)["rows"]) == 1


def jpeg_of_scans(count: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    file = io.BytesIO()
    PIL.Image.new("L", (64, 64), 100).save(file, "JPEG", progressive=True)
    head, mark, scan = file.getvalue().rpartition(b"\xff\xda")
    return head + (mark + scan[:-2]) * count + scan[-2:]


@pytest.fixture(scope="module")
def guarded_server(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a token, a limit per address, a watch with a state, and the usual limits."""
    folder = tmp_path_factory.mktemp("state")
    (folder / "token").write_text("secret-7\n")
    (folder / "state").mkdir()
    words = ("--token-file", str(folder / "token"), "--max", "per_address=2,seconds=20", "--workers", "1")
    words += ("--watch", "--state", str(folder / "state" / "w.safetensors"))
    made = started(exported, exported.with_name("guarded.jsonl"), *words)
    yield made
    stopped(made)


TOKEN = {"authorization": "Bearer secret-7"}


def test_a_body_of_many_empty_images_does_not_block_the_service(guarded_server: Server) -> None:
    url, count = f"{guarded_server.address}/predict", 4_000_000
    part = b'--x\r\nContent-Disposition: form-data; name="images"\r\n\r\n\r\n'
    form = TOKEN | {"content-type": "multipart/form-data; boundary=x"}
    for body, headers, status in (
        (b'{"images":[' + b'"",' * count + b'""]}', TOKEN | JSON, 413),
        (b'{"images":[' + b"[]," * count + b"[]]}", TOKEN | JSON, 400),
        (part * 250_000 + b"--x--\r\n", form, 413),
        (b"--x\r\n" + b"A: b\r\n" * 1_000_000 + b"\r\nx\r\n--x--\r\n", form, 400),
    ):
        with ThreadPoolExecutor(1) as threads:
            attack = threads.submit(httpx.post, url, content=body, headers=headers, timeout=60)
            while not attack.done():
                httpx.get(f"{guarded_server.address}/health", timeout=2)
        assert attack.result().status_code == status


def test_a_jpeg_of_many_scans_is_not_decoded(guarded_server: Server) -> None:
    for count, error in ((50, "network only accepts 16 x 16"), (200, "a JPEG of more than 100 scans")):
        body = {"images": [base64.b64encode(jpeg_of_scans(count)).decode()]}
        answer = httpx.post(f"{guarded_server.address}/predict", json=body, headers=TOKEN)
        assert error in answer.json()["images"][0]["error"]


def test_requests_need_the_token(guarded_server: Server, digits: Path) -> None:
    address, (good,) = guarded_server.address, pictures(digits / "test", 1)
    for headers, status in ((TOKEN, 200), ({}, 401), ({"authorization": "Bearer secret-8"}, 401)):
        assert httpx.post(f"{address}/predict", files={"images": good}, headers=headers).status_code == status
        assert httpx.get(f"{address}/metrics", headers=headers).status_code == status
    assert httpx.get(f"{address}/ready").status_code == 200


def test_one_address_may_send_so_many_at_once(guarded_server: Server, digits: Path) -> None:
    slow = SLOW.replace(b"Host: x", b"Host: x\r\nAuthorization: Bearer secret-7")
    url, files = f"{guarded_server.address}/predict", {"images": pictures(digits / "test", 1)[0]}
    with ExitStack() as lines:
        hold(guarded_server, slow, 2, lines)
        time.sleep(0.3)
        assert httpx.post(url, files=files, headers=TOKEN).status_code == 429
    time.sleep(0.3)
    assert httpx.post(url, files=files, headers=TOKEN).status_code == 200


def test_the_state_is_saved_while_idle_and_a_full_disk_is_no_failure(guarded_server: Server, digits: Path) -> None:
    url, files = f"{guarded_server.address}/predict", {"images": pictures(digits / "test", 1)[0]}
    words = guarded_server.process.args
    assert isinstance(words, list)
    state = Path(words[-1])
    assert httpx.post(url, files=files, headers=TOKEN).status_code == 200
    seen = guarded_server.metrics()["oodshape_watch_images"]
    until = time.monotonic() + 30
    while not (state.is_file() and Watch.load(state).seen == seen):
        assert time.monotonic() < until
        time.sleep(0.2)
    shutil.rmtree(state.parent)  # nothing can be written there any more
    assert httpx.post(url, files=files, headers=TOKEN).status_code == 200
    until = time.monotonic() + 30
    while not guarded_server.metrics()["oodshape_watch_save_failures_total"]:
        assert time.monotonic() < until
        time.sleep(0.2)
    assert guarded_server.events("watch not saved")
    assert httpx.post(url, files=files, headers=TOKEN).status_code == 200
    state.parent.mkdir()
    assert stopped(guarded_server) == 0
    assert Watch.load(state).seen == seen + 2


@pytest.mark.timeout(90, method="thread")  # where a service is not refused, it runs for ever
def test_refusals_are_one_line(exported: Path, guard: Guard, digits: Path, tmp_path: Path) -> None:
    per_class = guard.calibrate(digits / "val", MODEL, alpha=0.2, per_class=True, progress=False)
    per_class.export(tmp_path / "per_class.onnx", MODEL, images=digits / "val")
    trained = replace(guard, about=replace(guard.about, held_out=False))
    trained.export(tmp_path / "trained.onnx", MODEL, images=digits / "val")
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, said in (
            ((str(exported), "--port", port), "give another --host or --port"),
            (("none.onnx",), "there is no file none.onnx"),
            ((str(tmp_path / "per_class.onnx"), "--watch"), "it has a threshold per class"),
            ((str(tmp_path / "trained.onnx"), "--watch"), "it was calibrated on training images"),
            ((str(exported), "--state", "watch.safetensors"), "give both, or neither"),
        ):
            done = call("serve", *words, cwd=tmp_path)
            assert done.returncode == 2
            assert said in done.stderr
            assert done.stderr.count("\n") == 1


def test_the_limits_of_an_image_reach_the_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started_with: list[Settings] = []
    monkeypatch.setattr("oodshape.guard.service.serve.serve", started_with.append)
    call("serve", "x.onnx", "--limits", "pixels=8,aspect=9,inflated=7", cwd=tmp_path)
    assert started_with[0].limits == Limits(pixels=8, aspect=9, inflated=7)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_it_stops_while_work_hangs(server: Server, digits: Path) -> None:
    os.kill(scoring_processes(server)[0], signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(sent, server, pictures(digits / "test", 1))
        time.sleep(0.3)
        assert stopped(server) == 0
