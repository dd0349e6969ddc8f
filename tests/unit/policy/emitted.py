"""Which findings the policy's source can make, read from its syntax trees.

Every call of ``Finding`` and ``NodeRule`` counts. What they are called with is followed through parameters of the
function around them, local names, conditional expressions and tables of a module; whatever else is written there has
to be taught here, else ``unread`` says where it is.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SEVERITIES = frozenset(("deny", "warn"))


@dataclass
class Emitted:
    """Codes with the severities they can come with; ``unread`` are places that could not be followed."""

    severities: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unread: list[str] = field(default_factory=list)


def emitted(folder: Path) -> Emitted:
    """Look through every module below a folder."""
    found = Emitted()
    for path in sorted(folder.rglob("*.py")):
        if path.name != "catalogue.py":
            _Module(path, ast.parse(path.read_text()), found).read()
    return found


class _Module:
    def __init__(self, path: Path, tree: ast.Module, found: Emitted) -> None:
        self.path, self.tree, self.found = path, tree, found
        self.functions = {f.name: f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}

    def read(self) -> None:
        for function, call in self._calls("Finding"):
            if _is_rule_code(call.args[0]):
                continue  # made from a NodeRule, which is read as such
            for code, severity in self._pairs(function, call):
                self.found.severities[code] |= {severity}
        for _, call in self._calls("NodeRule"):
            for code in self._values(call.args[0]):
                self.found.severities[code].add("deny")

    def _pairs(self, function: ast.FunctionDef | None, call: ast.Call) -> Iterator[tuple[str, str]]:
        """Code and severity of a Finding, seen from each call of a function that passes either on."""
        code, severity = call.args[0], call.args[1]
        if function is None or not isinstance(code, ast.Name):
            for one in self._values(code):
                yield from ((one, s) for s in self._severities(severity))
            return
        by_caller = next((n.id for n in ast.walk(severity) if isinstance(n, ast.Name)), None)
        for _, outer in self._calls(function.name):
            bound = _bind(function, outer)
            own = self._severities(bound[by_caller] if by_caller else severity)
            yield from ((c, s) for c in self._values(bound[code.id]) for s in own)

    def _values(self, part: ast.expr) -> set[str]:
        """The strings that an expression can come to."""
        match part:
            case ast.Constant(str(text)):
                return {text}
            case ast.IfExp(_, one, other):
                return self._values(one) | self._values(other)
            case ast.Subscript(ast.Name(table)):
                return {w for n in self.tree.body if _assigns(n, table) for w in _table(n)}
        self._give_up(part)
        return set()

    def _severities(self, part: ast.expr) -> set[str]:
        """The severities that an expression can come to; a parameter or a setting can be either."""
        match part:
            case ast.Constant(str(text)) if text in SEVERITIES:
                return {text}
            case ast.IfExp(_, one, other):
                return self._severities(one) | self._severities(other)
            case ast.Name() | ast.Attribute():
                return set(SEVERITIES)
        self._give_up(part)
        return set()

    def _give_up(self, part: ast.expr) -> None:
        self.found.unread.append(f"{self.path.name}:{part.lineno} {ast.unparse(part)}")

    def _calls(self, name: str) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
        inside = {id(n): f for f in self.functions.values() for n in ast.walk(f)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield inside.get(id(node)), node


def _bind(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    """Arguments of a call by the parameters' names, defaults included."""
    args = function.args
    defaults = dict(zip((a.arg for a in args.args[len(args.args) - len(args.defaults) :]), args.defaults, strict=True))
    given = dict(zip((a.arg for a in args.args), call.args, strict=False))
    return defaults | given | {k.arg: k.value for k in call.keywords if k.arg}


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)


def _table(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
        yield from (v.value for v in node.value.values if isinstance(v, ast.Constant) and isinstance(v.value, str))


def _is_rule_code(part: ast.expr) -> bool:
    return isinstance(part, ast.Attribute) and part.attr == "code"
