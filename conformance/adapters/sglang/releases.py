"""What is known of SGLang's releases: which rules of the specification each does not follow, and what it cannot show.

Where a release keeps what is watched is found by `seams.py`, also for a release that is not in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from kvproof.conformance.adapters.sglang.memory_check_terms import TokenTerms
from kvproof.conformance.adapters.sglang.release_features import Way, named
from kvproof.conformance.adapters.sglang.seams import SEAMS, find_seams
from kvproof.conformance.errors import UserError
from kvproof.spec.gaps import CHECKPOINT_WHILE_RUNNING, ONE_RECORD, PROTECTED_LEN_OF_RETRACTED, UNKNOWN_RELEASE

INSTALL_HINT = (
    "run `make test-sglang` once, or `python tests/conformance/adapters/sglang/make_env.py`, "
    "and use the environment it names"
)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of one release by having run it."""

    version: str
    checkpoint_is_stable: bool = True
    """the checkpoint changes only when a turn ends, so it may be read at any time"""
    retract_clears_protected_len: bool = True
    """a retract sets cache_protected_len to 0; else the old value stays until the next match overwrites it"""
    known_deviations: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


_KNOWN_SINCE_0511 = ("S0511a", "S0511b")

RELEASES: tuple[Known, ...] = (
    Known(
        version="0.5.10.post1",
        checkpoint_is_stable=False,
        retract_clears_protected_len=False,
        gaps=(
            CHECKPOINT_WHILE_RUNNING,
            PROTECTED_LEN_OF_RETRACTED,
        ),
    ),
    Known(version="0.5.11", known_deviations=_KNOWN_SINCE_0511),
    Known(version="0.5.12", known_deviations=_KNOWN_SINCE_0511),
    Known(version="0.5.14", known_deviations=_KNOWN_SINCE_0511),
    Known(version="0.5.17", known_deviations=_KNOWN_SINCE_0511),
    Known(version="0.5.20", known_deviations=_KNOWN_SINCE_0511),
    Known(version="0.5.23", known_deviations=("S0511a",)),
)


@dataclass(frozen=True, kw_only=True)
class Release(Known):
    """One release with the ways in which it does things; `seams.py` says what each field is."""

    ways: dict[str, str | None]
    """seam -> name of the way that was found"""
    publish: Callable[[Any], None]
    receive: Callable[[Any, Callable[..., list[Any]]], None]
    send: Callable[[Any, Any], None]
    input_ids: Callable[[list[int]], Any]
    session_cache: str
    session: str
    session_controller: str
    keeps_unfinished: str | None
    is_chunk: Callable[[Any, dict[str, Any]], bool]
    kept_len: Callable[[Any], int]
    has_tree: Callable[[Any], bool]
    row: Callable[[Any], Any]
    lengths: Callable[[list[Any]], list[tuple[int, int, int]]]
    window_cursor: Callable[[Any], int]
    evicts_window: str | None
    window_map: Callable[[Any], Any] | None
    holds_row: Callable[[Any], bool]
    one_record: bool
    prefix_len: Callable[[Any], int]
    parts: bool
    fill_len: Callable[[Any], int]
    free_pages: Callable[[Any], list[int]]
    idle_check: str
    busy_check: str | None
    terms: Callable[[Any, bool], dict[str, TokenTerms]] | None
    marker: str | None
    closing: str | None

    def lengths_of(self, owner: Any) -> tuple[int, int, int]:
        """kv_committed_len, kv_allocated_len and cache_protected_len of a request or a slot."""
        return self.lengths([owner])[0]

    def load(self, place: str) -> Any:
        """The class behind one of this release's module:class names."""
        return named(getattr(self, place))


def layers_of(tree_cache: Any) -> tuple[Any, Any | None]:
    """The tree, or chunk cache, and the layer that keeps the slots of sessions; a server without sessions has none.

    The layer may be wrapped around the tree, or be a part of it; newer releases have both, by the kind of tree.
    """
    if hasattr(tree_cache, "slots"):
        return tree_cache.inner, tree_cache
    inside = getattr(tree_cache, "session", None)
    return tree_cache, inside if hasattr(inside, "slots") else None


def installed_version() -> str:
    """The version of the SGLang that this interpreter would import; nothing of it is imported yet."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError as error:
        raise UserError(f"SGLang is not installed in this environment: {INSTALL_HINT}") from error


def installed_release() -> Release:
    """The SGLang that this interpreter imports, with its seams; an error says what was found where some are missing."""
    return release_of(installed_version(), find_seams())


def release_of(version: str, found: dict[str, Way | None]) -> Release:
    missing = [seam for seam in SEAMS if found[seam.name] is None]
    needed = [f"{seam.name} ({seam.what})" for seam in missing if seam.otherwise is None]
    if needed:
        kept = ", ".join(f"{name}: {way.name}" for name, way in found.items() if way is not None)
        raise UserError(
            f"SGLang {version} cannot be driven: nothing known is there for {'; '.join(needed)}. "
            f"Found: {kept or 'nothing'}"
        )
    gaps = [seam.otherwise for seam in missing if seam.otherwise is not None]
    known = next((known for known in RELEASES if known.version == version), None)
    if known is None:
        known = Known(version=version)
        gaps.insert(0, UNKNOWN_RELEASE.format(release=version))
    values: dict[str, Any] = {name: way.value if way is not None else None for name, way in found.items()}
    if values["one_record"]:
        gaps.append(ONE_RECORD)
    of_release = {**vars(known), **values, "gaps": (*gaps, *known.gaps)}
    return Release(**of_release, ways={name: way.name if way is not None else None for name, way in found.items()})


def read_terms(release: Release, scheduler: Any, *, busy: bool) -> dict[str, TokenTerms]:
    """The terms of each pool, `full` and `window`. While busy the tokens of live batches count, as in the release's check."""
    return release.terms(scheduler, busy) if release.terms is not None else {}
