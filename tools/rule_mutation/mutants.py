"""Mutants of the rules: each is the specification with one small mistake in it, generated from its source.

A mistake is one that a person makes: `<` for `<=`, one token too many, a forgotten update, a guard left out, the wrong
rounding, a condition the wrong way round. What the invariants and the other checks do not notice of them, nobody would notice.

An edit sets one field of one syntax node; it is undone before the next. Mutants come in the order of the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kvproof.model
import kvproof.spec
from rule_mutation.edits import Edit, applied, called, flipped, name_field, place_of, text_of, with_element
from rule_mutation.page_mutants import page_edits, page_rules

SPEC, MODEL = Path(kvproof.spec.__file__).parent, Path(kvproof.model.__file__).parent
OF_PAGES = ("pages", "window_map")
# The rules. What must hold (invariants) and what is known to be wrong (faults) are the judges, not the accused.
JUDGES = frozenset({"invariants.py", "faults", "profiles.py", "trace.py", "__init__.py"})

TWINS = {"smaller": "larger", "ceil_align": "floor_align", "ceil_pages": "floor_pages"}
TWINS |= {b: a for a, b in TWINS.items()}
ALL_OR_ANY = {"every": "some", "some": "every"}
CONSTANT_FLAGS = {"true": "false", "false": "true"}
# Calls whose arguments are no numbers: sentences, tables, flags.
NOT_OF_NUMBERS = frozenset(
    {"Guard", "Condition", "Action", "Step", "_of", "getattr", "every", "some", "no", "implies", "replace"}
)
NOT_NUMBERS = (ast.Lambda, ast.Starred, ast.Compare, ast.Dict, ast.Tuple, ast.JoinedStr)
STATE_NAMES = frozenset({"d", "s", "p", "after", "self"})
ONE_MORE, ONE_LESS, REACHED = "_one_more", "_one_less", "_reached"


@dataclass(frozen=True)
class Mutant:
    """One mistake in one module. `key` is the same in every run over the same source; `begins`: the line of its function."""

    module: str
    path: str
    line: int
    function: str
    operator: str
    original: str
    mutated: str
    key: str
    begins: int = 0


def rule_modules() -> dict[str, Path]:
    """The modules that are mutated, by import name, in order: the rules, and what effects mean for pages."""
    paths = [p for p in sorted(SPEC.rglob("*.py")) if JUDGES.isdisjoint(p.relative_to(SPEC).parts)]
    rules = {".".join(("kvproof.spec", *p.relative_to(SPEC).with_suffix("").parts)): p for p in paths}
    return rules | {f"kvproof.model.{name}": MODEL / f"{name}.py" for name in OF_PAGES}


def is_of_pages(module: str) -> bool:
    return module.startswith("kvproof.model.")


def all_mutants() -> Iterator[Mutant]:
    """Every mutant of every rule."""
    for module in rule_modules():
        yield from (mutant for mutant, _ in mutants_of(module))


def mutants_of(module: str) -> Iterator[tuple[Mutant, ast.Module]]:
    """Each mutant with its syntax tree, which is valid until the next one is asked for."""
    path = rule_modules()[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen: set[tuple[int, str]] = set()
    where = f"model/{path.name}" if is_of_pages(module) else f"spec/{path.relative_to(SPEC).as_posix()}"
    for function, scope, edit in _in_order(_page_edits(tree) if is_of_pages(module) else _rule_edits(tree)):
        seen.add((id(scope), ast.dump(scope)))
        with applied(edit):
            form = (id(scope), ast.dump(scope))
            if form in seen:
                continue
            seen.add(form)
            key = f"{where}:{edit.line}:{edit.column} {edit.operator}: {edit.original} -> {edit.mutated}"
            said = edit.operator, edit.original, edit.mutated
            mutant = Mutant(module, where, edit.line, function, *said, key, _begins(scope))
            with _marked(scope):
                yield mutant, ast.fix_missing_locations(tree)


def _begins(scope: ast.FunctionDef | ast.Lambda) -> int:
    """The first line of a function as Python counts it: that of its first decorator."""
    decorators = scope.decorator_list if isinstance(scope, ast.FunctionDef) else []
    return min(node.lineno for node in (scope, *decorators))


@contextmanager
def _marked(scope: ast.FunctionDef | ast.Lambda) -> Iterator[None]:
    """The mutated function says that it is run: what nothing runs is neither right nor wrong."""
    call = ast.Call(ast.Name(REACHED, ast.Load()), [], [])
    if isinstance(scope, ast.FunctionDef):
        has_docstring = isinstance(scope.body[0], ast.Expr) and isinstance(scope.body[0].value, ast.Constant)
        body: Any = [*scope.body[:has_docstring], ast.Expr(call), *scope.body[has_docstring:]]
    else:
        both = ast.Tuple([call, scope.body], ast.Load())
        body = ast.Subscript(both, ast.Constant(1), ast.Load())
    kept: Any = scope.body
    scope.body = body
    try:
        yield
    finally:
        scope.body = kept


Found = tuple[str, ast.FunctionDef | ast.Lambda, Edit]


def _rule_edits(tree: ast.Module) -> Iterator[Found]:
    effects = _effect_classes()
    for function, scope in _rules(tree):
        d_known = any(a.arg == "d" for a in scope.args.args)
        for node in _own_nodes(scope):
            yield from ((function, scope, edit) for edit in _edits(node, effects, d_known))


def _page_edits(tree: ast.Module) -> Iterator[Found]:
    for function, scope in page_rules(tree):
        for node in _own_nodes(scope):
            yield from ((function, scope, edit) for edit in page_edits(node))


def _in_order(found: Iterable[Found]) -> list[Found]:
    return sorted(found, key=lambda item: _place(item[2]))


def _place(edit: Edit) -> tuple[int, int, str, str, str]:
    return edit.line, edit.column, edit.operator, edit.original, edit.mutated


def _rules(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.Lambda]]:
    """Every function and every lambda above one, with a name for reports. A protocol's empty methods are no rules."""
    for top in tree.body:
        for node in ast.walk(top):
            if isinstance(node, ast.FunctionDef) and any(a.arg in ("d", "s") for a in node.args.args):
                owner = f"{top.name}." if isinstance(top, ast.ClassDef) else ""
                yield owner + node.name, node
            elif isinstance(node, ast.Call):
                given = [*node.args, *(k.value for k in node.keywords if k.arg == "when")]
                for condition in (a for a in given if isinstance(a, ast.Lambda)):
                    yield f"{_owner(top, node)} applies", condition


def _owner(top: ast.stmt, call: ast.Call) -> str:
    """The rule that a decorator stands above, or the name that an entry of a table begins with."""
    if isinstance(top, ast.FunctionDef):
        return top.name
    first = call.args[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _own_nodes(scope: ast.FunctionDef | ast.Lambda) -> Iterator[ast.AST]:
    """The scope's body and the scope itself, without annotations and without scopes inside it."""
    yield scope
    body = scope.body if isinstance(scope, ast.FunctionDef) else [scope.body]
    rest: list[ast.AST] = [node for node in body if not isinstance(node, ast.FunctionDef | ast.Lambda)]
    while rest:
        node = rest.pop()
        yield node
        parts = [node.value] if isinstance(node, ast.AnnAssign) and node.value else ast.iter_child_nodes(node)
        rest.extend(c for c in parts if not isinstance(c, ast.FunctionDef | ast.Lambda))


def _effect_classes() -> dict[str, list[str]]:
    """Names of the effects and of their fields, from the source: classes with an `apply`."""
    tree = ast.parse((SPEC / "effects.py").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(
            isinstance(b, ast.FunctionDef) and b.name == "apply" for b in node.body
        ):
            found[node.name] = [
                b.target.id for b in node.body if isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name)
            ]
    return found


def _edits(node: ast.AST, effects: dict[str, list[str]], d_known: bool) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        yield from flipped(node)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        sign, op = ("-", ast.Sub()) if isinstance(node.op, ast.Add) else ("+", ast.Add())
        text = f"{text_of(node.left)} {sign} {text_of(node.right)}"
        yield Edit("other sign", node, "op", op, text_of(node), text, node.lineno, node.col_offset)
    elif isinstance(node, ast.Tuple):
        yield from _dropped_elements(node, effects)
    elif isinstance(node, ast.Attribute) and _is_constant_flag(node):
        value = CONSTANT_FLAGS[node.attr]
        yield Edit("swap every/some", node, "attr", value, text_of(node), f"d.{value}", *place_of(node))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
        if node.value.value is not None and called(condition := node.value.value) == "Condition":
            nothing = ast.Constant(None)
            yield Edit("drop condition", node, "value", nothing, text_of(condition), "(dropped)", *place_of(node))
    elif isinstance(node, ast.BoolOp):
        for i, operand in enumerate(node.values):
            rest = node.values[:i] + node.values[i + 1 :]
            rest = rest if len(rest) > 1 else rest * 2  # Python has no conjunction of one
            yield Edit("drop operand", node, "values", rest, text_of(operand), "(dropped)", *place_of(operand))
    elif isinstance(node, ast.Call):
        yield from _of_call(node, effects, d_known)
    elif isinstance(node, ast.Assign) and d_known and isinstance(node.value, ast.BinOp | ast.Call | ast.Attribute):
        yield from _shifted(node, "value", node.value, None)
    elif isinstance(node, ast.Lambda) and d_known and not _is_equality(node.body):
        yield _negated(node, "body", node.body, None)
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
        yield from _conditions_dropped(node.value)


def _of_call(node: ast.Call, effects: dict[str, list[str]], d_known: bool) -> Iterator[Edit]:
    name = called(node)
    at = (node.lineno, node.col_offset)
    if name == "but":
        for i, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                rest = node.keywords[:i] + node.keywords[i + 1 :]
                line, column = keyword.lineno, keyword.col_offset
                yield Edit("drop update", node, "keywords", rest, text_of(keyword), "(dropped)", line, column)
    if name in TWINS:
        yield Edit("swap twin", node.func, name_field(node.func), TWINS[name], name, TWINS[name], *at)
    if name in ALL_OR_ANY and _is_of_domain(node):
        yield from _of_connective(node, name)
    if name == "no" and _is_of_domain(node):
        yield Edit("negate condition", node.func, "attr", "every", text_of(node), text_of(node.args[0]), *at)
    if d_known:
        yield from _negated_arguments(node, name, effects)
        if name not in NOT_OF_NUMBERS:
            for i, argument in enumerate(node.args):
                yield from _shifted(node, "args", argument, i)
            for keyword in node.keywords:
                if keyword.arg is not None and keyword.arg != "phase":
                    yield from _shifted(keyword, "value", keyword.value, None)
    if name == "Step":
        yield from _effects_dropped(node)


def _of_connective(node: ast.Call, name: str) -> Iterator[Edit]:
    """Any for all and back; one operand left out."""
    at = (node.lineno, node.col_offset)
    if len(node.args) != 1 or isinstance(node.args[0], ast.Starred):
        mutated = text_of(node).replace(name, ALL_OR_ANY[name], 1)
        yield Edit("swap every/some", node.func, "attr", ALL_OR_ANY[name], text_of(node), mutated, *at)
    if len(node.args) > 1:
        for i, operand in enumerate(node.args):
            rest = node.args[:i] + node.args[i + 1 :]
            yield Edit("drop operand", node, "args", rest, text_of(operand), "(dropped)", *place_of(operand))


def _negated_arguments(node: ast.Call, name: str, effects: dict[str, list[str]]) -> Iterator[Edit]:
    flags: list[int] = []
    if name in ALL_OR_ANY and _is_of_domain(node):
        flags = list(range(len(node.args)))
    elif name == "where":
        flags = [0]
    elif name in ("implies", "Guard", "Condition"):
        flags = [1, 2] if name == "implies" else [len(node.args) - 1] if name == "Guard" else [1]
    elif name in effects:
        flags = [i for i, field in enumerate(effects[name]) if field == "when"]
    for i in flags:
        if i < len(node.args):
            argument = node.args[i]
            covered = _is_equality(argument) or isinstance(argument, ast.Starred) or called(argument) == "no"
            if not covered:
                yield _negated(node, "args", argument, i)


def _negated(node: Any, name: str, flag: ast.expr, index: int | None) -> Edit:
    opposite = ast.Call(ast.Attribute(ast.Name("d", ast.Load()), "no", ast.Load()), [flag], [])
    value = with_element(getattr(node, name), index, opposite)
    return Edit("negate condition", node, name, value, text_of(flag), f"d.no({text_of(flag)})", *place_of(flag))


def _shifted(node: Any, name: str, number: ast.expr, index: int | None) -> Iterator[Edit]:
    """One token (or page) more, one less. What is no number is found out when it runs, and is no mutant."""
    if isinstance(number, NOT_NUMBERS) or (isinstance(number, ast.Name) and number.id in STATE_NAMES):
        return
    if _is_constant_flag(number) or (isinstance(number, ast.Constant) and not isinstance(number.value, int)):
        return
    if isinstance(number, ast.Call) and (called(number) in NOT_OF_NUMBERS or called(number) == "but"):
        return
    is_zero = text_of(number) in ("0", "d.zero")
    for helper, sign in ((ONE_MORE, "+"),) if is_zero else ((ONE_MORE, "+"), (ONE_LESS, "-")):
        shifted = ast.Call(ast.Name(helper, ast.Load()), [ast.Name("d", ast.Load()), number], [])
        value = with_element(getattr(node, name), index, shifted)
        yield Edit("off by one", node, name, value, text_of(number), f"{text_of(number)} {sign} 1", *place_of(number))


def _dropped_elements(node: ast.Tuple, effects: dict[str, list[str]]) -> Iterator[Edit]:
    """A guard, a condition or an effect left out of its tuple; a name left out of a tuple of field names."""
    for i, element in enumerate(node.elts):
        name = called(element)
        is_field = isinstance(element, ast.Constant) and isinstance(element.value, str)
        kind = (
            "guard" if name == "Guard" else "condition" if name == "Condition" else "effect" if name in effects else ""
        )
        kind = kind or ("update" if is_field else "")
        if kind:
            rest = node.elts[:i] + node.elts[i + 1 :]
            yield Edit(f"drop {kind}", node, "elts", rest, text_of(element), "(dropped)", *place_of(element))


def _conditions_dropped(returned: ast.Tuple) -> Iterator[Edit]:
    """`return ledger, conditions` without the conditions, or without one of them."""
    conditions = returned.elts[1]
    if isinstance(conditions, ast.Name) and conditions.id == "conditions":
        return  # its elements are dropped one by one where the tuple is written
    if isinstance(conditions, ast.Tuple):
        for i, element in enumerate(conditions.elts):
            if isinstance(element, ast.Name):
                rest = conditions.elts[:i] + conditions.elts[i + 1 :]
                yield Edit(
                    "drop condition", conditions, "elts", rest, text_of(element), "(dropped)", *place_of(element)
                )


def _effects_dropped(step: ast.Call) -> Iterator[Edit]:
    """A step without its effects, or without one that is named by a variable or made by a function."""
    found: list[tuple[Any, str, ast.expr, int | None]] = [
        (k, "value", k.value, None) for k in step.keywords if k.arg == "effects"
    ]
    found += [(step, "args", step.args[i], i) for i in range(2, len(step.args))]
    for node, name, effects, index in found:
        if not isinstance(effects, ast.Tuple):
            value = with_element(getattr(node, name), index, ast.Tuple([], ast.Load()))
            yield Edit("drop effect", node, name, value, text_of(effects), "()", *place_of(effects))
            continue
        for i, element in enumerate(effects.elts):
            rest = effects.elts[:i] + effects.elts[i + 1 :]
            yield Edit("drop effect", effects, "elts", rest, text_of(element), "(dropped)", *place_of(element))


def _is_of_domain(node: ast.Call) -> bool:
    return _is_attribute_of_domain(node.func)


def _is_constant_flag(node: ast.AST) -> bool:
    """`d.true` or `d.false`."""
    return isinstance(node, ast.Attribute) and node.attr in CONSTANT_FLAGS and _is_attribute_of_domain(node)


def _is_attribute_of_domain(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "d"


def _is_equality(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq)
