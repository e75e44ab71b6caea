"""Small mistakes in ordinary Python code, made one at a time in its syntax tree. No file is written.

The mistakes are those that a person makes: a comparison flipped, one too many, a statement forgotten, two arguments in the wrong
order, a condition that says nothing. An edit sets one field of one node and is undone before the next, as those of the rules are
(`tools/rule_mutation/mutants.py`).

What is not mutated: what only tells what was done (`Accused.telling`), assertions and the messages of errors, annotations and
defaults. Where a number is shifted that turns out to be none, the mutant is none: `Numbers` says so when it runs.
"""

from __future__ import annotations

import ast
import numbers
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rule_mutation.edits import COMPARISONS, Edit, applied, called, place_of, text_of, with_element
from rule_mutation.mutants import Mutant

Function = ast.FunctionDef
ONE_MORE, ONE_LESS, NEGATIVE = "_one_more", "_one_less", "_negative"
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **COMPARISONS,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
TWINS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "ceil_align": "floor_align",
    "floor_align": "ceil_align",
    "popleft": "pop",
    "pop": "popleft",
}
NO_NUMBERS = (
    ast.Lambda,
    ast.Starred,
    ast.Compare,
    ast.BoolOp,
    ast.Dict,
    ast.List,
    ast.Set,
    ast.Tuple,
    ast.JoinedStr,
    ast.ListComp,
    ast.SetComp,
    ast.GeneratorExp,
    ast.DictComp,
    ast.Constant,
    ast.IfExp,
)
CALLS_OF_NO_NUMBERS = frozenset(
    {"isinstance", "list", "tuple", "set", "super", "sorted", "deque", "range", "dict", "field"}
)
ORDER_IS_NOTHING = frozenset({"min", "max", "isinstance"})
UNTOUCHED = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Accused:
    """A module whose functions are mutated. `path` is how reports name it."""

    module: str
    path: str
    telling: frozenset[str] = frozenset()
    """Statements that name one of these do nothing but tell, or are for what does not run here."""
    functions: Callable[[str], bool] = lambda name: True
    hides_text: bool = False
    """It is somebody else's code, which is not repeated: its mutants go by line and kind."""


@dataclass(frozen=True)
class Mistake:
    """A mutant, with its tree, which is valid until the next one is asked for."""

    mutant: Mutant
    function: Function
    tree: ast.Module
    statement: ast.stmt
    """What it is in: what never comes here, behaves as before."""


class NotANumber(BaseException):
    """One more was asked for of what is no number. No Exception: what is under test may catch those."""


class Numbers:
    """What the mutated code calls. `seen`: whether there was a number at all."""

    def __init__(self) -> None:
        self.seen = False

    @property
    def names(self) -> dict[str, Callable[..., Any]]:
        return {
            ONE_MORE: lambda value: self._shifted(value, 1),
            ONE_LESS: lambda value: self._shifted(value, -1),
            NEGATIVE: self._negative,
        }

    def _shifted(self, value: Any, by: int) -> Any:
        return value if value is None else self._number(value) + by

    def _number(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise NotANumber
        self.seen = True
        return value

    def _negative(self, value: Any) -> Any:
        if isinstance(value, bool) or not hasattr(value, "__neg__"):
            raise NotANumber
        self.seen = True
        return -value


def mistakes(accused: Accused, source: str) -> Iterator[Mistake]:
    """In the order of the source. Two that come to the same tree are one."""
    tree = ast.parse(source)
    named: Counter[str] = Counter()
    for name, function in _functions(tree):
        if not accused.functions(name):
            continue
        seen = {ast.dump(function)}
        for statement, edit in _edits_of(function, accused.telling):
            with applied(edit):
                form = ast.dump(function)
                if form in seen:
                    continue
                seen.add(form)
                what = f"{accused.path} {name} {_said_of(edit, accused)}"
                named[what] += 1
                nth = f" ({named[what]})" if named[what] > 1 else ""
                mutant = Mutant(
                    accused.module,
                    accused.path,
                    edit.line,
                    name,
                    edit.operator,
                    edit.original,
                    edit.mutated,
                    f"{what}{nth}",
                )
                yield Mistake(mutant, function, ast.fix_missing_locations(tree), statement)


def _said_of(edit: Edit, accused: Accused) -> str:
    if accused.hides_text:
        return f"line {edit.line}: {edit.operator}"
    return f"{edit.operator}: {edit.original} -> {edit.mutated}"


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    for top in tree.body:
        if isinstance(top, ast.FunctionDef):
            yield top.name, top
        elif isinstance(top, ast.ClassDef):
            yield from ((f"{top.name}.{node.name}", node) for node in top.body if isinstance(node, ast.FunctionDef))


def _edits_of(function: Function, telling: frozenset[str]) -> list[tuple[ast.stmt, Edit]]:
    objects = _objects(function)
    found = [
        (statement, edit)
        for block, index in _statements(function)
        if (statement := block[1][index]) and not _is_untouched(statement, telling)
        for edit in (*_dropped(block, index), *_inside(statement))
        if not (edit.operator == "off by one" and edit.original in objects)
    ]
    found.sort(key=lambda item: (item[1].line, item[1].column, item[1].operator, item[1].original, item[1].mutated))
    return found


def _objects(function: Function) -> set[str]:
    """Arguments that are no numbers: there is none in their annotation."""
    arguments = function.args.args + function.args.kwonlyargs
    annotated = {each.arg: text_of(each.annotation) for each in arguments if each.annotation is not None}
    return {"self"} | {name for name, said in annotated.items() if "int" not in said and "Any" not in said}


Block = tuple[Any, list[ast.stmt], str]
"""The node that holds the statements, they, and the field that they are in."""


def _statements(node: Any) -> Iterator[tuple[Block, int]]:
    """Every statement of a function with the block that it stands in; not those of functions inside."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if not isinstance(block, list):
            continue
        for index, statement in enumerate(block):
            yield (node, block, name), index
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield from _statements(statement)


def _is_untouched(statement: ast.stmt, telling: frozenset[str]) -> bool:
    if isinstance(statement, UNTOUCHED):
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True  # its docstring
    return any(word in telling for part in _header(statement) for node in ast.walk(part) for word in _words(node))


def _words(node: ast.AST) -> Iterator[str]:
    """The names in an identifier, whole and in parts: `mamba_pool_idx` names mamba."""
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
    if isinstance(name, str):
        yield name
        yield from name.split("_")


def _header(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement that are not statements inside it."""
    inner = {id(each) for name in ("body", "orelse", "finalbody", "handlers") for each in getattr(statement, name, [])}
    parts = [part for part in ast.iter_child_nodes(statement) if id(part) not in inner]
    if isinstance(statement, ast.AnnAssign):
        parts = [part for part in parts if part is not statement.annotation]
    return parts


def _dropped(block: Any, index: int) -> Iterator[Edit]:
    """The statement left out. Names that are set for later are not: without them nothing would run."""
    node, statements, name = block
    statement = statements[index]
    match statement:
        case ast.Expr(value=ast.Call() | ast.Yield()):
            pass
        case ast.Assign() if all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets):
            pass
        case ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break() | ast.Return(value=None):
            pass
        case _:
            return
    rest = [*statements[:index], *statements[index + 1 :]] or [ast.Pass()]
    yield _edit("drop statement", node, name, rest, text_of(statement), "(dropped)", statement)


def _inside(statement: ast.stmt) -> Iterator[Edit]:
    if isinstance(statement, ast.If | ast.While):
        yield from _fixed(statement, statement.test)
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return) and statement.value is not None:
        yield from _shifted(statement, "value", statement.value, None)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub):
        other = ast.Call(ast.Name(NEGATIVE, ast.Load()), [statement.value], [])
        opposite = "-" if isinstance(statement.op, ast.Add) else "+"
        text = f"{text_of(statement.target)} {opposite}= {text_of(statement.value)}"
        yield _edit("other sign", statement, "value", other, text_of(statement), text, statement)
        yield from _shifted(statement, "value", statement.value, None)
    for part in _header(statement):
        for node in ast.walk(part):
            yield from _of_expression(node)
            yield from _flags_and_constants(node)


def _of_expression(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        yield from _flipped(node)
    elif isinstance(node, ast.BoolOp):
        for index, operand in enumerate(node.values):
            rest = [*node.values[:index], *node.values[index + 1 :]]
            kept = rest if len(rest) > 1 else rest * 2  # one operand alone is none in the syntax
            yield _edit("drop operand", node, "values", kept, text_of(operand), "(dropped)", operand)
    elif isinstance(node, ast.IfExp):
        yield from _fixed(node, node.test)
    elif isinstance(node, ast.comprehension):
        for index, test in enumerate(node.ifs):
            rest = [*node.ifs[:index], *node.ifs[index + 1 :]]
            yield _edit("drop operand", node, "ifs", rest, f"if {text_of(test)}", "(dropped)", test)
    elif isinstance(node, ast.BinOp):
        yield from _other_sign(node)
    elif isinstance(node, ast.Slice):
        for name in ("lower", "upper"):
            if getattr(node, name) is not None:
                yield from _shifted(node, name, getattr(node, name), None)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _flipped(node: ast.Compare) -> Iterator[Edit]:
    for index, op in enumerate(node.ops):
        other = with_element(node.ops, index, OPPOSITES[type(op)]())  # type: ignore[arg-type]
        text = text_of(ast.Compare(node.left, other, node.comparators))
        yield _edit("flip comparison", node, "ops", other, text_of(node), text, node)


def _fixed(node: Any, test: ast.expr) -> Iterator[Edit]:
    """A condition that says nothing. The condition of a loop is not made true: it would never end, and prove nothing."""
    for value in (False,) if isinstance(node, ast.While) else (True, False):
        yield _edit("fix condition", node, "test", ast.Constant(value), text_of(test), str(value), test)


def _other_sign(node: ast.BinOp) -> Iterator[Edit]:
    if isinstance(node.op, ast.Add | ast.Sub) and not isinstance(node.right, ast.List | ast.ListComp | ast.JoinedStr):
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        other = ast.Call(ast.Name(NEGATIVE, ast.Load()), [node.right], [])
        text = f"{text_of(node.left)} {sign} {text_of(node.right)}"
        yield _edit("other sign", node, "right", other, text_of(node), text, node)


def _of_call(node: ast.Call) -> Iterator[Edit]:
    name = called(node)
    if name in TWINS and (isinstance(node.func, ast.Attribute) or name not in ("pop", "popleft")):
        field = "id" if isinstance(node.func, ast.Name) else "attr"
        if not (name in ("pop", "popleft") and node.args):
            yield _edit("swap twin", node.func, field, TWINS[name], text_of(node), TWINS[name], node)
    for index in range(len(node.args) - 1 if name not in ORDER_IS_NOTHING else 0):
        one, two = node.args[index : index + 2]
        if not isinstance(one, ast.Starred) and not isinstance(two, ast.Starred):
            swapped = [*node.args[:index], two, one, *node.args[index + 2 :]]
            text = f"{text_of(two)}, {text_of(one)}"
            yield _edit("swap arguments", node, "args", swapped, f"{text_of(one)}, {text_of(two)}", text, one)
    if name not in CALLS_OF_NO_NUMBERS:
        for index, argument in enumerate(node.args):
            yield from _shifted(node, "args", argument, index)
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield from _shifted(keyword, "value", keyword.value, None)


def _shifted(node: Any, name: str, number: ast.expr, index: int | None) -> Iterator[Edit]:
    if isinstance(number, NO_NUMBERS) or called(number) in CALLS_OF_NO_NUMBERS:
        return
    for helper, sign in ((ONE_MORE, "+"), (ONE_LESS, "-")):
        shifted = ast.Call(ast.Name(helper, ast.Load()), [number], [])
        value = with_element(getattr(node, name), index, shifted)
        yield _edit("off by one", node, name, value, text_of(number), f"{text_of(number)} {sign} 1", number)


def _flags_and_constants(node: ast.AST) -> Iterator[Edit]:
    for name, value in ast.iter_fields(node):
        parts: Sequence[Any] = value if isinstance(value, list) else [value]
        for index, part in enumerate(parts):
            place = index if isinstance(value, list) else None
            if isinstance(part, ast.Constant) and isinstance(part.value, bool):
                flipped = with_element(value, place, ast.Constant(not part.value))
                yield _edit("flip flag", node, name, flipped, str(part.value), str(not part.value), part)
            elif isinstance(part, ast.Constant) and isinstance(part.value, int):
                for number in (part.value + 1, part.value - 1):
                    shifted = with_element(value, place, ast.Constant(number))
                    yield _edit("off by one", node, name, shifted, str(part.value), str(number), part)
            elif isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
                plain = with_element(value, place, part.operand)
                yield _edit("drop not", node, name, plain, text_of(part), text_of(part.operand), part)


def _edit(operator: str, node: Any, name: str, value: Any, original: str, mutated: str, at: ast.AST) -> Edit:
    return Edit(operator, node, name, value, _line(original), _line(mutated), *place_of(at))


def _line(text: str) -> str:
    return " ".join(text.split())
