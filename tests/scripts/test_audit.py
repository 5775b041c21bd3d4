"""An audit that looked nothing up says so, and does not pass for one that found nothing."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
audit = importlib.import_module("audit")
SKIPPED = {"name": "a", "skip_reason": "not found"}
SOUND = {"name": "b", "version": "1", "vulns": []}
HIT = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": []}]}


@pytest.mark.parametrize(
    ("answer", "printed", "fails"),
    [
        ("", audit.NOT_REACHED, False),
        (json.dumps({"dependencies": [SKIPPED]}), audit.NOT_REACHED, False),
        (json.dumps({"dependencies": [SKIPPED, SOUND]}), "1 packages looked up, 0 advisories", False),
        (
            json.dumps({"dependencies": [SOUND, HIT]}),
            "c 2: CVE-1, fixed in no version\n2 packages looked up, 1 advisories",
            True,
        ),
    ],
)
def test_what_is_said(
    answer: str, printed: str, fails: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        listed = json.dumps([{"name": "torch", "version": "2.13.0+cpu"}])
        return subprocess.CompletedProcess(words, 0, listed if "list" in words else answer)

    monkeypatch.setattr(subprocess, "run", run)
    for more in ([], ["--report"]):
        monkeypatch.setattr(sys, "argv", ["audit.py", "python", *more])
        if fails and not more:
            with pytest.raises(SystemExit):
                audit.main()
        else:
            audit.main()
        assert capsys.readouterr().out == f"{printed}\n"
    assert audit.installed("python") == ["torch==2.13.0"]
