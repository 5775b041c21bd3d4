"""Look up the packages of an environment in the advisory database of pip-audit.

    python scripts/audit.py ENVIRONMENT/bin/python [--report]

Needs pip-audit where this script runs. Fails where a package has a known advisory; with --report it only prints them.
pip-audit calls a package that it could not look up "skipped" and ends well: where it could look up none, the database
was not reached, and one line says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NOT_REACHED = "pip-audit does not reach its database: no package was looked up"


def installed(python: str) -> list[str]:
    """The packages of an environment as `name==version`, without editable ones and without local versions (+cpu)."""
    words = [python, "-m", "pip", "--disable-pip-version-check", "list", "--format=json", "--exclude-editable"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return [f"{each['name']}=={each['version'].partition('+')[0]}" for each in found]


def looked_up(requirements: list[str]) -> list[dict[str, Any]]:
    """What pip-audit says about each package that it could look up; nothing where it did not get to an answer."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("\n".join(requirements))
        words = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--format=json", "-r", str(file)]
        output = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    try:
        return [each for each in json.loads(output)["dependencies"] if "skip_reason" not in each]
    except json.JSONDecodeError:  # it could not connect
        return []


def main() -> None:
    """Print the advisories."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="the environment's interpreter")
    parser.add_argument("--report", action="store_true", help="print advisories, and do not fail")
    given = parser.parse_args()
    found = looked_up(installed(given.python))
    if not found:
        print(NOT_REACHED)
        return
    advisories = [(each, one) for each in found for one in each["vulns"]]
    for each, one in advisories:
        fixed = ", ".join(one["fix_versions"]) or "no version"
        print(f"{each['name']} {each['version']}: {one['id']}, fixed in {fixed}")
    print(f"{len(found)} packages looked up, {len(advisories)} advisories")
    if advisories and not given.report:
        sys.exit(1)


if __name__ == "__main__":
    main()
