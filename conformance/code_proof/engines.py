"""The inference servers whose functions are proved: which package holds them, and the claims about them."""

from __future__ import annotations

from collections.abc import Mapping

import kvproof.conformance.adapters.sglang.code
import kvproof.conformance.adapters.sglang_jax.code
from kvproof.conformance.adapters.sglang.code import functions as sglang
from kvproof.conformance.adapters.sglang_jax.code import functions as sglang_jax
from kvproof.model.code.claims import Claim
from kvproof.model.code.source import Sources
from kvproof.spec.actions import Action

PACKAGES = (sglang.PACKAGE, sglang_jax.PACKAGE)
SOURCES = (kvproof.conformance.adapters.sglang.code, kvproof.conformance.adapters.sglang_jax.code)
GIVEN = {**sglang.GIVEN, **sglang_jax.GIVEN}
"""Values of names that a server imports, by their dotted names."""


def claims_of(sources: Sources, actions: Mapping[str, Action]) -> list[Claim]:
    """The claims about the server that the tree holds; none where it holds none that is known."""
    return sglang.claims_of(sources, actions) or sglang_jax.claims_of(sources, actions)
