"""Kill runs at seeded moments, run them again, and compare: bit-equal, no process and no file left over.

    python fuzz/kill.py [--kills 200] [--seed 0] [--only fit | disasters | service]

Then what else befalls a run: a full disk, a folder that may not be written, a cache that goes, an image that goes, two
runs on one cache and on one output; at last `serve --watch`. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import torch

from disasters import DISASTERS
from kill_service import killed_service
from kill_tasks import TASKS, Task, clear, differences, killed, left, preload, run, said, write_inputs


def main() -> int:
    """Run everything; 0 where nothing differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    torch.set_num_threads(1)  # no thread may be at work when this process forks
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="oodshape-kill-") as home:
        Path(home).chmod(0o755)
        inputs = Path(home) / "inputs"
        write_inputs(inputs)
        preload(Path(home))
        for task in TASKS:
            if given.only in ("", task.name):
                wrong += kills(task, Path(home), given.kills * task.share // 100, random.Random(f"{given.seed} {task}"))
        rest = {"": (*DISASTERS, killed_service), "disasters": DISASTERS, "service": (killed_service,)}
        for disaster in rest.get(given.only, ()):
            found = disaster(Path(home))
            print(f"{disaster.__doc__ or disaster.__name__} {'; '.join(found) or 'as it must'}", flush=True)
            wrong += found
    print("\n".join(["", *wrong[:20], f"{len(wrong)} wrong"]))
    return 1 if wrong else 0


def kills(task: Task, home: Path, count: int, chance: random.Random) -> list[str]:
    """So many kills of one command, each followed by a run to the end; what was not as it must be."""
    whole = home / f"{task.name}-whole"
    began = time.monotonic()
    status = run(task.words, whole)
    took = time.monotonic() - began
    wanted, done, early = left(whole), 0, 0
    wrong: list[str] = []
    if status not in (0, 3):
        return [f"{task.name}: the run that nobody killed ended with {status}: {said(whole)}"]
    folder = home / task.name
    while done < count and early < 3 * count + 10:
        moment = chance.uniform(0, took)
        hit, stayed = killed(task, folder, moment)
        what = f"{task.name}, kill {done + 1} after {moment:.3f} s"
        wrong += [f"{what}: the process {each} is still there" for each in stayed]
        if not hit:
            early += 1  # it was done before
            clear(folder)
            continue
        done += 1
        if chance.random() < 0.3:
            continue  # and again, where the run before was killed
        code = run(task.words, folder)
        if code == status:
            wrong += [f"{what}: {each}" for each in differences(left(folder), wanted)]
        else:
            wrong.append(f"{what}: the next run ended with {code}: {said(folder)}")
        clear(folder)
    print(f"{task.name}: {done} kills of a run of {took:.1f} s ({early} came too late), {len(wrong)} wrong", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
