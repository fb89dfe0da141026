"""Header of results files; see rl/provenance.py."""

from rl.provenance import RESULTS, header, write

__all__ = ["RESULTS", "header", "write"]
