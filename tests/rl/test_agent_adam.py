"""What optimisers import is left to the processes that optimise: it is slow, and must precede any GL context."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import rl.agent.acting, rl.config
assert "torch._dynamo" not in sys.modules, "a process that only acts or reads its configuration pays for it"
from rl.agent.adam import load_optimiser
load_optimiser()
assert "torch._dynamo" in sys.modules
"""


def test_only_a_process_that_optimises_imports_the_compiler() -> None:
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, cwd=root, timeout=120)
