"""The service under load: nothing lost, memory flat, and what it costs next to a plain process that does the same work.

    python benches/serve.py GUARDED.ONNX IMAGES [--requests 20000] [--at-once 16] [--workers 1]

The client is this process and its cost is left out: processor time and memory are those of the server alone. The plain
process decodes, prepares and runs the same images one by one, in turn with the service, a quarter of the work each; the
service may take 1.15 times its processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

from harness import now

CLOCK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
LIMIT = 1.15  # of the plain process's processor time
GROWTH = 1.05  # of memory, from the first quarter of the requests to the end
PLAIN = """
import sys, time
from oodshape.guard.export.guarded_file import GuardedFile
guarded, images = GuardedFile(sys.argv[1], threads=1), [open(name, "rb").read() for name in sys.argv[3:]]
guarded(images[0])
for line in sys.stdin:
    start = time.process_time()
    for i in range(int(sys.argv[2])):
        guarded(images[i % len(images)])
    print((time.process_time() - start) / int(sys.argv[2]), flush=True)
"""


def seconds_and_memory(root: int) -> tuple[float, float]:
    """(processor seconds, resident MiB) of a process and all below it; Linux."""
    seconds, memory, todo = 0.0, 0.0, [root]
    while todo:
        pid = todo.pop()
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        seconds += (int(stat[11]) + int(stat[12])) / CLOCK
        memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        for task in Path(f"/proc/{pid}/task").iterdir():
            todo += map(int, (task / "children").read_text().split())
    return seconds, memory


def body(image: bytes) -> bytes:
    """A request with one image, whole."""
    part = b'--x\r\nContent-Disposition: form-data; name="images"; filename="i"\r\n\r\n' + image + b"\r\n--x--\r\n"
    kind = "Content-Type: multipart/form-data; boundary=x"
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\n{kind}\r\nContent-Length: {len(part)}\r\n\r\n"
    return head.encode() + part


async def client(port: int, bodies: list[bytes], places: list[int], seen: Counter[str], times: list[float]) -> None:
    """Send the requests of one connection, one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while places:
        place = places.pop()
        start = now()
        writer.write(bodies[place % len(bodies)])
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length")
        )
        answer = await reader.readexactly(length)
        times.append(now() - start)
        seen[head.split()[1] if b'"accepted"' in answer else "empty"] += 1
    writer.close()


async def load(port: int, bodies: list[bytes], count: int, at_once: int) -> tuple[Counter[str], list[float]]:
    """How the requests were answered, and how long each took."""
    seen: Counter[str] = Counter()
    places, times = list(range(count)), list[float]()
    await asyncio.gather(*(client(port, bodies, places, seen, times) for _ in range(at_once)))
    return seen, times


def ready(port: int) -> bool:
    """Whether the service answers."""
    from urllib.request import urlopen

    try:
        return bool(urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).status == 200)
    except OSError:
        return False


def main() -> None:
    """Start the service, ask it, stop it, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("guarded")
    parser.add_argument("images", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--plain", type=int, default=0, help="images of the plain process [a quarter of the requests]")
    words = parser.parse_args()
    files = sorted(path for path in words.images.rglob("*") if path.suffix in (".png", ".jpg", ".jpeg", ".JPEG"))[:200]
    bodies = [body(path.read_bytes()) for path in files]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "from oodshape.cli import main; main()"
    told = ["serve", words.guarded, "--port", str(port), "--workers", str(words.workers), "--watch"]
    count = max((words.plain or words.requests // 4) // 4, 1)
    alike = [sys.executable, "-c", PLAIN, words.guarded, str(count), *map(str, files)]
    with (
        subprocess.Popen([sys.executable, "-c", code, *told], stdout=subprocess.DEVNULL) as server,
        subprocess.Popen(alike, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as plain,
    ):
        assert plain.stdin is not None
        assert plain.stdout is not None
        try:
            while not ready(port):
                assert server.poll() is None, "the service ended"
                asyncio.run(asyncio.sleep(0.2))
            asyncio.run(load(port, bodies, max(words.at_once, len(bodies)), words.at_once))  # all is loaded
            quarters, times, seen = [seconds_and_memory(server.pid)], list[float](), Counter[str]()
            alone = 0.0
            for _ in range(4):
                plain.stdin.write("go\n")
                plain.stdin.flush()
                alone += float(plain.stdout.readline()) / 4
                part, took = asyncio.run(load(port, bodies, words.requests // 4, words.at_once))
                seen, times = seen + part, times + took
                quarters.append(seconds_and_memory(server.pid))
            server.send_signal(signal.SIGTERM)
            status = server.wait(60)
        finally:
            server.kill()
            plain.kill()
    count, times = len(times), sorted(times)
    each = (quarters[-1][0] - quarters[0][0]) / count
    growth = quarters[-1][1] / quarters[1][1]
    print(f"{count} requests, {words.at_once} at once: {dict(seen)}; stopped with status {status}")
    print(f"p50 {1000 * times[count // 2]:.1f} ms, p99 {1000 * times[int(0.99 * count)]:.1f} ms")
    print(f"memory after each quarter: {', '.join(f'{memory:.0f}' for _, memory in quarters[1:])} MiB ({growth:.3f})")
    ratio = each / alone
    print(f"processor time per image: {1000 * each:.2f} ms, plain {1000 * alone:.2f} ms: {ratio:.2f}, at most {LIMIT}")
    kept = seen == {"200": words.requests // 4 * 4} and status == 0 and growth <= GROWTH and ratio <= LIMIT
    print("ok" if kept else "MISSED")
    sys.exit(not kept)


if __name__ == "__main__":
    main()
