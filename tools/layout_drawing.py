"""The layout of the package, drawn from its imports: `make layout`.

Reads each module with `ast` and writes docs/pictures/layout.svg and the lines between the markers of docs/architecture.md.
A box is a package; it stands on the level above the highest package that it imports. Imports inside functions count too.

`--measures` prints the size of the project instead: lines, levels, import cycles and the longest functions.
"""

from __future__ import annotations

import argparse
import ast
import html
import math
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path("docs/architecture.md")
PICTURE = Path("docs/pictures/layout.svg")
BEGIN, END = "<!-- layout:begin (make layout) -->", "<!-- layout:end -->"
PACKAGES = {
    "package": "kvproof",
    "spec": "kvproof.spec",
    "model": "kvproof.model",
    "impl": "kvproof.impl",
    "kernels": "kvproof.kernels",
    "conformance": "kvproof.conformance",
}
"""Folder of the repository and the package that it is installed as."""

Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def imported_names(self) -> Iterator[str]:
        """Dotted names that the module imports, anywhere in it; `from a import b` gives `a.b`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{self._origin(node)}.{alias.name}" for alias in node.names)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        kept = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*kept, node.module] if node.module else kept)


def modules(root: Path) -> dict[str, Module]:
    """Every module of the package, by its dotted name."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            inner = path.relative_to(root / folder).with_suffix("").parts
            name = ".".join((package, *(inner[:-1] if inner[-1] == "__init__" else inner)))
            found[name] = Module(name, path)
    return found


def import_graph(found: Mapping[str, Module]) -> Graph:
    """Module -> the modules of the project that it imports. A name imported from a module counts as that module."""
    graph = {}
    for name, module in found.items():
        wanted = (known(imported, found) for imported in module.imported_names())
        graph[name] = {target for target in wanted if target not in (None, name)}
    return graph


def known(imported: str, found: Mapping[str, Module]) -> str | None:
    while imported and imported not in found:
        imported = imported.rpartition(".")[0]
    return imported or None


GROUND = "conformance/*.py"


def box_of(module: str) -> str:
    """The box of a module, named by its folder: `spec`, or `conformance/replay`; a module of `conformance` itself is its own."""
    parts = module.split(".")[1:]
    return "/".join(parts[:2] if parts[:1] == ["conformance"] else parts[:1])


def boxes(graph: Graph) -> Graph:
    """The graph of packages. The modules of `conformance` itself that import nothing are one box.

    Left out are the roots `kvproof` and `kvproof.conformance`, which only name what is below them.
    """
    drawn: dict[str, set[str]] = {}
    for module, imported in graph.items():
        drawn.setdefault(box_of(module), set()).update(box_of(target) for target in imported)
    roots = {"", "conformance"}
    drawn = {box: targets - roots - {box} for box, targets in drawn.items() if box not in roots}
    packages = {box_of(module) for module in graph if module.count(".") > 1 + box_of(module).count("/")}
    ground = {box for box, targets in drawn.items() if "/" in box and box not in packages and not targets}

    def merged(box: str) -> str:
        return GROUND if box in ground else box

    together: dict[str, set[str]] = {}
    for box, targets in drawn.items():
        together.setdefault(merged(box), set()).update(map(merged, targets))
    return together


def reached(graph: Graph) -> Graph:
    """Node -> all nodes that its imports lead to."""
    found = {}
    for start in graph:
        seen: set[str] = set()
        unread = set(graph[start])
        while unread:
            node = unread.pop()
            seen.add(node)
            unread |= graph[node] - seen
        found[start] = seen
    return found


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of nodes that import each other, directly or by way of others."""
    reach = reached(graph)
    groups = {frozenset({node, *(other for other in reach[node] if node in reach[other])}) for node in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def levels(graph: Graph) -> dict[str, int]:
    """Node -> the length of the longest import chain that begins there; nodes of a cycle share one level."""
    reach = reached(graph)
    known_levels: dict[str, int] = {}

    def level(node: str) -> int:
        if node not in known_levels:
            below = [other for other in reach[node] if node not in reach[other]]
            known_levels[node] = 1 + max(map(level, below), default=0)
        return known_levels[node]

    return {node: level(node) for node in graph}


def arrows(graph: Graph) -> list[tuple[str, str]]:
    """The imports to draw: those that no longer chain of imports implies, and all inside a cycle."""
    reach = reached(graph)

    def is_implied(node: str, target: str) -> bool:
        others = (other for other in graph[node] if other != target and node not in reach[other])
        return any(target in reach[other] for other in others)

    return sorted((node, to) for node, targets in graph.items() for to in targets if not is_implied(node, to))


# --- The drawing -----------------------------------------------------------------------------------------------------------

WIDTH, BOX_HEIGHT, GAP, ROW, MARGIN, LEFT = 900, 60, 16, 94, 12, 60
WIDEST_ROW = 4
"""Boxes side by side; a level of more is drawn in several rows."""
CHARACTER = 6.1
"""Width of a character of a description, in the units of the picture."""
STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #1a1a1a }
  .name { font-size: 14px; font-weight: 600 }
  .name, .about { text-anchor: middle }
  .level { fill: #707070 }
  rect { fill: #eef2fb; stroke: #4a63b5 }
  path { fill: none; stroke: #8a8a8a }
  path.cycle { stroke: #c62828; stroke-width: 2 }
  marker path { fill: #8a8a8a; stroke: none }
  .page { fill: #ffffff; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8e8e8 }
    .level { fill: #a0a0a0 }
    rect { fill: #232b45; stroke: #8ea2e8 }
    .page { fill: #15171e }
  }
"""


def rows(graph: Graph) -> list[tuple[int, list[str]]]:
    """Levels and their boxes, the highest level first; in a row each box stands near those that import it."""
    by_level = levels(graph)
    place: dict[str, float] = {}

    def near(box: str) -> tuple[float, str]:
        importing = [at for other, at in place.items() if box in graph[other]]
        return (sum(importing) / len(importing) if importing else 0.5, box)

    found = []
    for level in range(max(by_level.values()), 0, -1):
        row = sorted((box for box in graph if by_level[box] == level), key=near)
        place |= {box: index / len(row) for index, box in enumerate(row)}
        length = math.ceil(len(row) / math.ceil(len(row) / WIDEST_ROW))
        found += [(level, row[start : start + length]) for start in range(0, len(row), length)]
    return found


def drawing(graph: Graph, about: Mapping[str, str]) -> str:
    """The packages as SVG: one row a level, arrows from a package to what it imports."""
    placed: dict[str, tuple[float, float, float]] = {}
    parts, drawn_rows = [], rows(graph)
    for index, (level, row) in enumerate(drawn_rows):
        gaps = GAP * (len(row) - 1)
        width = (WIDTH - LEFT - gaps) / max(len(row), 2)
        left = LEFT + (WIDTH - LEFT - gaps - len(row) * width) / 2
        top = MARGIN + index * ROW
        parts.append(f'<text class="level" x="8" y="{top + 34}">level {level}</text>')
        for box in row:
            placed[box] = (left, top, width)
            parts += _box(box, about.get(box, ""), left, top, width)
            left += width + GAP
    lines = _arrows(graph, placed)
    height = MARGIN * 2 + ROW * len(drawn_rows) - (ROW - BOX_HEIGHT)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 8} {height}" role="img">'
    marker = '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    defined = f'<defs>{marker}<path d="M0 0L8 4L0 8z"/></marker></defs>'
    page = f'<rect class="page" width="{WIDTH + 8}" height="{height}"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", defined, page, *lines, *parts, "</svg>", ""])


def _box(name: str, about: str, left: float, top: float, width: float) -> Iterator[str]:
    middle = left + width / 2
    yield f'<rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="6"/>'
    yield f'<text class="name" x="{middle:.0f}" y="{top + 19}">{html.escape(name)}</text>'
    wrapped = textwrap.wrap(about, int((width - 12) / CHARACTER), max_lines=2, placeholder=" …")
    for row, words in enumerate(wrapped):
        yield f'<text class="about" x="{middle:.0f}" y="{top + 36 + 14 * row}">{html.escape(words, quote=False)}</text>'


def _arrows(graph: Graph, placed: Mapping[str, tuple[float, float, float]]) -> Iterator[str]:
    """Arrows leave and reach a box side by side, in the order of the boxes that they come from or lead to."""
    reach, drawn = reached(graph), arrows(graph)

    def port(box: str, others: list[str], other: str) -> float:
        left, _, width = placed[box]
        return left + width * (sorted(others, key=lambda name: placed[name]).index(other) + 1) / (len(others) + 1)

    for box, to in drawn:
        from_x = port(box, [target for source, target in drawn if source == box], to)
        to_x = port(to, [source for source, target in drawn if target == to], box)
        from_y, to_y = placed[box][1] + BOX_HEIGHT, placed[to][1]
        bend = abs(to_y - from_y) / 2
        kind = ' class="cycle"' if box in reach[to] else ""
        curve = (
            f"M{from_x:.0f} {from_y}C{from_x:.0f} {from_y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y}"
        )
        yield f'<path{kind} d="{curve}" marker-end="url(#a)"/>'


def descriptions(found: Mapping[str, Module], drawn: Graph) -> dict[str, str]:
    """Box -> the first sentence of its docstring; of the modules that are one box, their names."""
    tops = {box_of(name): module for name, module in found.items() if name.count(".") == 1 + box_of(name).count("/")}
    docs = {box: (ast.get_docstring(module.tree) or "").partition("\n")[0] for box, module in tops.items()}
    ground = sorted(box.rpartition("/")[2] for box in tops if box not in drawn and "/" in box)
    return {**docs, GROUND: ", ".join(ground)}


def page_part(found: Mapping[str, Module]) -> str:
    """What stands between the markers of the page."""
    graph = import_graph(found)
    drawn = boxes(graph)
    circles = cycles(graph)
    said = "no import cycle" if not circles else f"{len(circles)} import cycles: {'; '.join(map(', '.join, circles))}"
    return (
        f"![Packages by level; each imports only packages on lower levels]({PICTURE.relative_to(PAGE.parent)})\n\n"
        f"{len(drawn)} boxes, {max(levels(drawn).values())} levels (the longest chain of imports), {said}.\n"
    )


def generated(root: Path) -> dict[Path, str]:
    """The files that `make layout` writes, and their text."""
    found = modules(root)
    drawn = boxes(import_graph(found))
    before, _, rest = (root / PAGE).read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return {
        PAGE: f"{before}{BEGIN}\n{page_part(found)}{END}{after}",
        PICTURE: drawing(drawn, descriptions(found, drawn)),
    }


# --- Measures --------------------------------------------------------------------------------------------------------------


def measures(root: Path) -> Iterator[str]:
    """The size of the project, one figure a line."""
    found = modules(root)
    graph = import_graph(found)
    tests = list((root / "tests").rglob("*.py"))
    yield f"package: {_lines(module.path for module in found.values()):,} lines in {len(found)} modules"
    yield f"tests: {_lines(tests):,} lines in {len(tests)} modules"
    tools = [*(root / "tools").rglob("*.py"), *(root / "benchmarks").rglob("*.py")]
    yield f"tools and benchmarks: {_lines(tools):,} lines in {len(tools)} modules"
    drawn = boxes(graph)
    yield f"packages: {len(drawn)} boxes, {max(levels(drawn).values())} levels, {len(cycles(drawn))} cycles"
    yield f"modules: {max(levels(graph).values())} levels, {len(cycles(graph))} cycles"
    yield from (f"  cycle: {', '.join(cycle)}" for cycle in cycles(graph))
    longest = sorted((function for module in found.values() for function in _functions(module)), reverse=True)
    yield "longest functions: " + ", ".join(f"{name} {length}" for length, name in longest[:5])


def _lines(paths: Iterator[Path] | list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _functions(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{module.name}:{node.name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measures", action="store_true", help="print the size of the project, write nothing")
    if parser.parse_args().measures:
        print("\n".join(measures(ROOT)))
        return
    for path, text in generated(ROOT).items():
        (ROOT / path).write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    sys.exit(main())
