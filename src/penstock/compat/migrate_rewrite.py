"""The rewriting behind `penstock migrate`: imports, references to what they bind, and the arguments of calls."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from penstock.compat import names
from penstock.compat.migrate_rules import ATTRIBUTES, Rule, rules
from penstock.compat.source_edits import Text, chains, import_line, imported, joined, names_in

_REACHABLE = ("penstock", "penstock.ops")  # what `import penstock` alone brings
_SHORT = "ps"


@dataclass(frozen=True)
class Note:
    """A line that a person should look at."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass
class _Binding:
    """A name in the script and the old module or object that an import binds it to."""

    local: str
    old: str
    kept: bool = False  # something under it has no rule, so the import stays
    frozen: bool = False  # nothing under it is rewritten
    module: str | None = None  # the native module that the name stands for afterwards
    new_local: str = ""
    used: bool = False


def rewrite(tree: ast.Module, source: str) -> tuple[str, list[Note], list[str]]:
    """The new text, what a person should look at, and the old names that stay."""
    return _Rewriter(tree, source).run()


class _Rewriter:
    def __init__(self, tree: ast.Module, source: str) -> None:
        self.tree, self.text = tree, Text(source)
        self.bindings: dict[str, _Binding] = {}
        self.imports: list[tuple[ast.Import | ast.ImportFrom, list[tuple[ast.alias, _Binding]]]] = []
        self.extra: list[str] = []  # imports that references through a module turned out to need
        self.left: list[str] = []
        self.theirs = imported(tree)  # (module, name) of other imports: what the script calls it
        self.taken = names_in(tree)
        self.notes: set[Note] = set()
        strings = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        self.in_strings = {id(inner) for string in strings for inner in ast.walk(string)}

    def run(self) -> tuple[str, list[Note], list[str]]:
        self._read_imports()
        self._rename_modules()
        for reference in chains(self.tree):
            self._rewrite_reference(reference)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                self._rewrite_call(node)
            self._look_at_attribute(node)
        self._rewrite_imports()
        return self.text.result(), sorted(self.notes, key=lambda note: (note.line, note.text)), self.left

    # what the script imports

    def _read_imports(self) -> None:
        for node in ast.walk(self.tree):
            found: list[tuple[ast.alias, _Binding]] = []
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if names.library_of(alias.name) in names.LIBRARIES:
                        # `import a.b` binds a; `import a.b as c` binds a.b.
                        old = alias.name if alias.asname else names.library_of(alias.name)
                        found.append((alias, self._bind(alias.asname or old, old)))
            elif isinstance(node, ast.ImportFrom) and names.library_of(node.module or "") in names.LIBRARIES:
                for alias in node.names:
                    found.append((alias, self._bind(alias.asname or alias.name, f"{node.module}.{alias.name}")))
            if found and isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports.append((node, found))

    def _bind(self, local: str, old: str) -> _Binding:
        return self.bindings.setdefault(local, _Binding(local, old, new_local=local))

    def _rename_modules(self) -> None:
        stored = {n.id: n.lineno for n in ast.walk(self.tree) if isinstance(n, ast.Name) and not _is_load(n)}
        stored.update({n.arg: n.lineno for n in ast.walk(self.tree) if isinstance(n, ast.arg)})
        for binding in self.bindings.values():
            rule = rules().get(binding.old)
            if binding.local in stored:
                self._keep(binding, stored[binding.local], f"{binding.local} is given another meaning here")
            elif rule is None:
                continue
            elif rule.is_module:
                binding.module = rule.to
                if rule.to == "penstock":
                    binding.new_local = _SHORT if _SHORT not in self.taken else "penstock"
            elif binding.local == binding.old.rsplit(".", 1)[-1] and not rule.is_literal:
                binding.new_local = self._local(rule.to, binding.local)

    def _local(self, new: str, own: str = "") -> str:
        """What to call a native name: by its own name, unless the script means something else by that."""
        module, _, name = new.rpartition(".")
        if (module, name) in self.theirs:
            return self.theirs[module, name]
        return name if name == own or name not in self.taken else f"Penstock{name}"

    def _keep(self, binding: _Binding, line: int, why: str) -> None:
        binding.kept = binding.frozen = True
        self._note(line, why)
        self.left.append(binding.old)

    def _note(self, line: int, text: str) -> None:
        self.notes.add(Note(line, text))

    # what it does with them

    def _resolve(self, node: ast.expr) -> tuple[_Binding, str, Rule | None, ast.expr] | None:
        """The binding, old name, rule and rewritten part of a chain `a.b.c` whose `a` is bound to an old library."""
        parts, inner = [node], node
        while isinstance(inner, ast.Attribute):
            inner = inner.value
            parts.append(inner)
        if not isinstance(inner, ast.Name) or inner.id not in self.bindings:
            return None
        binding = self.bindings[inner.id]
        tails = [part.attr for part in reversed(parts) if isinstance(part, ast.Attribute)]
        whole = ".".join([binding.old, *tails])
        for length in range(len(tails), -1, -1):
            old = ".".join([binding.old, *tails[:length]])
            rule = rules().get(old)
            if rule is not None and (not rule.is_module or length == len(tails)):
                return binding, old, rule, parts[len(tails) - length]
        return binding, whole, None, node

    def _rewrite_reference(self, node: ast.expr) -> None:
        found = self._resolve(node)
        if found is None or found[0].frozen:
            return
        binding, old, rule, part = found
        if rule is None:
            self._leave(binding, old, node.lineno)
            return
        if rule.note:
            self._note(node.lineno, f"{old.rsplit('.', 1)[-1]}: {rule.note}")
        start, end = self.text.span(part)
        if self.text.source[start:end].startswith(binding.local):
            self.text.replace(start, end, self._spelling(binding, old, rule))
        else:  # positions inside an f-string of several lines may be wrong
            self._leave(binding, old, node.lineno)

    def _spelling(self, binding: _Binding, old: str, rule: Rule) -> str:
        """How the script refers to the native name from now on."""
        if rule.is_literal:
            return rule.to
        if old == binding.old:
            binding.used = True
            return binding.new_local
        module, _, name = rule.to.rpartition(".")
        if binding.module is not None and (module == binding.module or (binding.module, module) == _REACHABLE):
            binding.used = True
            return f"{binding.new_local}{rule.to.removeprefix(binding.module)}"
        local = self._local(rule.to)
        if (module, name) not in self.theirs and (line := import_line(rule.to, local)) not in self.extra:
            self.extra.append(line)
        return local

    def _leave(self, binding: _Binding, old: str, line: int) -> None:
        binding.kept = True
        module, _, name = old.rpartition(".")
        entry = names.lookup(module, name) if module else None
        why = entry.note if entry is not None and entry.status == names.ABSENT else "no mechanical rewrite"
        self._note(line, f"{old}: {why}; see {names.GUIDES[names.library_of(old)][1]}")
        if old not in self.left:
            self.left.append(old)

    def _rewrite_call(self, call: ast.Call) -> None:
        found = self._resolve(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
        if found is None or found[2] is None or found[0].frozen:
            return
        old, rule = found[1].rsplit(".", 1)[-1], found[2]
        if id(call) in self.in_strings:  # up to Python 3.11 an f-string is one token: there is no place for a comma
            self._note(call.lineno, f"{old}: look at its arguments; inside an f-string they are not rewritten")
            return
        if rule.positional is not None and len(call.args) > rule.positional:
            self._note(
                call.args[rule.positional].lineno, f"{old}: name the arguments after the first {rule.positional}"
            )
        for keyword in call.keywords:
            if keyword.arg is None:
                self._note(keyword.value.lineno, f"{old}: look at what **{self.text.text(keyword.value)} passes on")
            else:
                self._rewrite_keyword(old, rule, keyword, keyword.arg)
        given = {rule.rename.get(str(keyword.arg), keyword.arg) for keyword in call.keywords}
        added = [f"{name}={value}" for name, value in rule.add.items() if name not in given]
        if added:
            self._append(call, ", ".join(added))

    def _rewrite_keyword(self, old: str, rule: Rule, keyword: ast.keyword, name: str) -> None:
        start, end = self.text.span(keyword)
        if name in rule.drop:
            self._note(keyword.lineno, f"{old}({name}=…) is gone: {rule.drop[name]}")
            self.text.remove_argument(start, end)
        elif name in rule.ask:
            self._note(keyword.lineno, f"{old}({name}=…): {rule.ask[name]}")
        elif name in rule.rename:
            self.text.replace(start, start + len(name), rule.rename[name])

    def _append(self, call: ast.Call, arguments: str) -> None:
        """Add arguments behind the last one, in the same style of lines."""
        close = self.text.span(call)[1] - 1
        _, last, token = self.text.before(close)
        between = self.text.source[last:close]
        if token == "(":
            self.text.replace(close, close, arguments)
        elif token == ",":
            indent = self.text.indent(last)
            self.text.replace(last, last, f"\n{indent}{arguments}," if "\n" in between else f" {arguments},")
        else:
            self.text.replace(last, last, f", {arguments}")

    def _look_at_attribute(self, node: ast.AST) -> None:
        name = node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.keyword) else None
        if name in ATTRIBUTES and self.bindings:
            self._note(node.end_lineno, f"{name}: {ATTRIBUTES[name]}")  # type: ignore[attr-defined]

    # the import statements themselves

    def _rewrite_imports(self) -> None:
        written: set[str] = set()
        at_top = [number for number, (node, _) in enumerate(self.imports) if node.col_offset == 0]
        for number, (node, found) in enumerate(self.imports):
            lines = self._native_lines(node, found) + (self.extra if number == (at_top or [0])[0] else [])
            if node.col_offset == 0:  # an import inside a function is its own
                lines = [line for line in dict.fromkeys(lines) if line not in written]
                written.update(lines)
            self._replace_statement(node, lines)

    def _replace_statement(self, node: ast.stmt, lines: list[str]) -> None:
        start, end = self.text.span(node)
        indent = self.text.indent(start)
        alone = start == self.text.line_start(start) + len(indent) and self.text.source[end : end + 1] in ("", "\n")
        if not lines and not indent and alone:
            self.text.replace(start, min(end + 1, len(self.text.source)), "")
        else:
            separator = "; " if start != self.text.line_start(start) + len(indent) else f"\n{indent}"
            self.text.replace(start, end, separator.join(lines or ["pass"]))

    def _native_lines(self, node: ast.Import | ast.ImportFrom, found: list[tuple[ast.alias, _Binding]]) -> list[str]:
        """What replaces an import statement: the part of it that stays, and the native imports."""
        ours = {id(alias) for alias, _ in found}
        kept = [alias for alias in node.names if id(alias) not in ours]
        lines: list[str] = []
        for alias, binding in found:
            rule = rules().get(binding.old)
            if binding.kept or (rule is None and not self._is_way(binding.old)):
                kept.append(alias)
                if rule is None and isinstance(node, ast.ImportFrom):
                    self._leave(binding, binding.old, node.lineno)
            if rule is not None and not binding.frozen and self._needs_import(binding, rule):
                lines.append(import_line(rule.to, binding.new_local))
        lines = joined(sorted(lines, key=lambda line: line.startswith("from")))
        if kept:
            listed = ", ".join(self.text.text(alias) for alias in kept)
            head = "import" if isinstance(node, ast.Import) else f"from {node.module} import"
            lines.insert(0, f"{head} {listed}")
        return lines

    def _needs_import(self, binding: _Binding, rule: Rule) -> bool:
        there = tuple(rule.to.rsplit(".", 1)) in self.theirs
        used = binding.module is None or binding.used  # a module may have been only a way to names of its own
        return used and not there and not rule.is_literal

    @staticmethod
    def _is_way(old: str) -> bool:
        """Whether a module without a native one only leads to names that have one."""
        return any(name.startswith(f"{old}.") for name in rules())


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)
