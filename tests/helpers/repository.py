"""Where things lie in this repository, for tests at any depth."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
VARIANTS = ROOT / "examples" / "variants"
EXCERPT = ROOT / "examples" / "mooncake_conversation_excerpt.jsonl"
"""Of a production workload."""
GOLDEN = ROOT / "tests" / "golden"
"""Traces of real runs that are kept."""
