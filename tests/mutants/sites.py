"""Where a mutant may be made, and what stands there instead: found in the syntax tree of libclang.

Assertions are read as release builds read them, which is as nothing, so no mutant is made in one, nor in the checks
that tests make (check*.c). What a macro with arguments expands to is left alone.
"""
import hashlib
import os
import re

try:
    from clang.cindex import Config, CursorKind, Index, TranslationUnit, TypeKind
except ImportError as missing:
    raise SystemExit("mutants: Python's binding of libclang is missing: pip install libclang") from missing

COMPARISONS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|"}
LOGICAL = {"&&": "||", "||": "&&"}
INTEGERS = {TypeKind.CHAR_U, TypeKind.UCHAR, TypeKind.USHORT, TypeKind.UINT, TypeKind.ULONG, TypeKind.ULONGLONG,
            TypeKind.CHAR_S, TypeKind.SCHAR, TypeKind.SHORT, TypeKind.INT, TypeKind.LONG, TypeKind.LONGLONG}
LITERAL = re.compile(rb"(0[xX][0-9a-fA-F]+|[0-9]+)([uUlL]*)$")
SIZEOF = CursorKind.CXX_UNARY_EXPR
NEVER = {SIZEOF, CursorKind.STRUCT_DECL, CursorKind.UNION_DECL, CursorKind.TYPEDEF_DECL}


class Site:
    """One mutant: bytes `begin` to `end` of a file become `text`."""

    def __init__(self, file, source, function, operator, begin, end, text):
        lines = source[begin:end].count(b"\n")
        self.file, self.function, self.operator = file, function, operator
        self.begin, self.end, self.text = begin, end, text + b"\n" * (lines - text.count(b"\n"))
        self.line = source.count(b"\n", 0, begin) + 1
        first, last = source.rfind(b"\n", 0, begin) + 1, source.find(b"\n", end)
        self.original = one_line(source[first:last])
        self.mutated = one_line(source[first:begin] + self.text + source[end:last])
        self.id = ""

    def key(self):
        return (self.file, self.function, self.original, self.mutated)

    def apply(self, source):
        return source[:self.begin] + self.text + source[self.end:]

    def diff(self):
        return f"- {self.original}\n+ {self.mutated}"


def one_line(text):
    return " ".join(text.decode(errors="replace").split())


class Finder:
    """The sites in one file, as a translation unit shows it."""

    def __init__(self, file, source, macros):
        self.file, self.source, self.macros = file, source, macros
        self.sites = []
        self.function = ""
        self.result = None

    def add(self, operator, begin, end, text):
        if self.source[begin:end] != text and not any(a < end and begin < b and not (begin <= a and b <= end)
                                                      for a, b in self.macros):
            self.sites.append(Site(self.file, self.source, self.function, operator, begin, end, text))

    def replace(self, operator, node, text):
        self.add(operator, *span(node), text if isinstance(text, bytes) else text.encode())

    def text(self, node):
        begin, end = span(node)
        return self.source[begin:end]

    def walk(self, node):
        begin, end = span(node)
        if not self.is_here(node):  # a table's rows stand in a file of their own
            return
        if node.kind in NEVER or any(a <= begin and end <= b for a, b in self.macros):
            return
        outer = self.function, self.result
        if node.kind == CursorKind.FUNCTION_DECL:
            self.function, self.result = node.spelling, node.result_type.get_canonical()
        children = list(node.get_children())
        handler = HANDLERS.get(node.kind)
        if handler:
            handler(self, node, children)
        for child in children:
            if not self.is_array_size(node, child):
                self.walk(child)
        self.function, self.result = outer

    def is_here(self, node):
        at = node.extent.start.file
        return at is None or os.path.basename(at.name) == os.path.basename(self.file)

    @staticmethod
    def is_array_size(node, child):
        return node.kind in (CursorKind.VAR_DECL, CursorKind.FIELD_DECL) and child.kind == CursorKind.INTEGER_LITERAL \
            and node.type.kind in (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY)

    def between(self, left, right):
        """What is written between two operands, and where."""
        begin, end = span(left)[1], span(right)[0]
        text = self.source[begin:end]
        token = text.strip()
        begin += len(text) - len(text.lstrip())
        return token.decode(errors="replace"), begin, begin + len(token)

    def binary(self, _node, children):
        if len(children) != 2:
            return
        left, right = children
        token, begin, end = self.between(left, right)
        if token in COMPARISONS:
            for other in COMPARISONS[token]:
                self.add("comparison", begin, end, other.encode())
            if token not in ("==", "!=") and is_integer(left) and is_integer(right):
                for step in (b" + 1", b" - 1"):
                    self.add("boundary", *span(right), b"(" + self.text(right) + b")" + step)
        elif token in LOGICAL:
            self.rejoin("connective", left, right, LOGICAL[token])
            self.add("operand", span(left)[0], span(right)[1], self.text(left))
            self.add("operand", span(left)[0], span(right)[1], self.text(right))
        elif token in ARITHMETIC and is_integer(left):
            self.rejoin("arithmetic", left, right, ARITHMETIC[token])

    def rejoin(self, operator, left, right, token):
        """Another operator between two operands, which stay what they are whatever binds tighter."""
        begin, end = span(left)[0], span(right)[1]
        between = self.source[span(left)[1]:span(right)[0]]
        sides = [b"(" + self.text(side) + b")" if self.is_composed(side) else self.text(side) for side in (left, right)]
        changed = between.replace(between.strip(), token.encode())
        self.add(operator, begin, end, b"(" + changed.join(sides) + b")")

    def is_composed(self, node):
        """Whether an expression is made of others by an operator, below conversions that are not written."""
        while node.kind == CursorKind.UNEXPOSED_EXPR and len(list(node.get_children())) == 1:
            node = next(node.get_children())
        return node.kind in (CursorKind.BINARY_OPERATOR, CursorKind.CONDITIONAL_OPERATOR)

    def compound(self, _node, children):
        token, begin, end = self.between(*children)
        if token[:-1] in ARITHMETIC:
            self.add("arithmetic", begin, end, ARITHMETIC[token[:-1]].encode() + b"=")
            self.add("arithmetic", begin, end, b"=")

    def unary(self, node, children):
        text, operand = self.text(node), self.text(children[0])
        if text[:1] in (b"!", b"~", b"-") and text[1:].strip() == operand:
            self.replace("negation", node, operand)
        elif b"++" in text or b"--" in text:
            self.replace("arithmetic", node, text.replace(b"++", b"??").replace(b"--", b"++").replace(b"??", b"--"))

    def branch(self, node, children):
        condition, begin, end = children[0], *span(children[0])
        self.add("condition", begin, end, b"!(" + self.text(condition) + b")")
        self.add("condition", begin, end, b"0")
        if node.kind == CursorKind.IF_STMT:
            self.add("condition", begin, end, b"1")
        self.statements(node, children[1:])

    def choice(self, node, children):
        condition, yes, no = children
        self.add("condition", *span(condition), b"!(" + self.text(condition) + b")")
        self.replace("clamp", node, b"(" + self.text(yes) + b")")
        self.replace("clamp", node, b"(" + self.text(no) + b")")

    def statements(self, _node, children):
        for child in children:
            kind, text = child.kind, self.text(child)
            assignment = kind == CursorKind.BINARY_OPERATOR and len(list(child.get_children())) == 2 and \
                self.between(*child.get_children())[0] == "="
            if kind in (CursorKind.CALL_EXPR, CursorKind.COMPOUND_ASSIGNMENT_OPERATOR) or assignment or \
                    (kind == CursorKind.UNARY_OPERATOR and (b"++" in text or b"--" in text)):
                self.replace("statement", child, b"")
            elif kind in (CursorKind.BREAK_STMT, CursorKind.CONTINUE_STMT) or (
                    kind == CursorKind.RETURN_STMT and text.strip() == b"return"):
                self.replace("statement", child, b"")

    def last_statement(self, node, children):
        self.statements(node, children[-1:])

    def literal(self, node, _children):
        match = LITERAL.match(self.text(node))
        if match:
            value = int(match[1], 0)
            for other in (value + 1, value - 1):
                text = (hex(other) if match[1][:2] in (b"0x", b"0X") and other >= 0 else str(other)).encode() + match[2]
                self.replace("constant", node, text if other >= 0 else b"(" + text + b")")

    def truth(self, node, _children):
        swapped = {b"true": b"false", b"false": b"true"}.get(self.text(node))
        if swapped:
            self.replace("constant", node, swapped)

    def returned(self, _node, children):
        if not children or self.result is None:
            return
        value, text = children[0], self.text(children[0])
        if self.result.kind == TypeKind.BOOL:
            if text not in (b"true", b"false"):
                self.replace("return", value, b"!(" + text + b")")
        elif self.result.spelling in ("enum cudaError_enum", "CUresult") or "CUresult" in self.result.spelling:
            self.replace("return", value, b"CUDA_ERROR_UNKNOWN" if text == b"CUDA_SUCCESS" else b"CUDA_SUCCESS")
        elif self.result.kind in INTEGERS or self.result.kind == TypeKind.ENUM:
            if not LITERAL.match(text):
                self.replace("return", value, b"(" + text + b") + 1")
                self.replace("return", value, b"0")
        elif self.result.kind == TypeKind.POINTER and text != b"NULL":
            self.replace("return", value, b"NULL")

    def call(self, node, _children):
        arguments = [a for a in node.get_arguments() if a is not None]
        for i, first in enumerate(arguments):
            for second in arguments[i + 1:]:
                if first.type.get_canonical().spelling == second.type.get_canonical().spelling:
                    a, b, middle = self.text(first), self.text(second), self.source[span(first)[1]:span(second)[0]]
                    if a != b:
                        self.add("arguments", span(first)[0], span(second)[1], b + middle + a)

    def variable(self, node, children):
        if self.function and children and children[-1].kind.is_expression() and \
                self.text(node).endswith(self.text(children[-1])) and b"=" in self.text(node):
            kind = node.type.get_canonical().kind
            if (kind in INTEGERS or kind == TypeKind.BOOL) and not LITERAL.match(self.text(children[-1])):
                self.replace("initializer", children[-1], b"0")


HANDLERS = {
    CursorKind.BINARY_OPERATOR: Finder.binary,
    CursorKind.COMPOUND_ASSIGNMENT_OPERATOR: Finder.compound,
    CursorKind.UNARY_OPERATOR: Finder.unary,
    CursorKind.IF_STMT: Finder.branch,
    CursorKind.WHILE_STMT: Finder.branch,
    CursorKind.CONDITIONAL_OPERATOR: Finder.choice,
    CursorKind.COMPOUND_STMT: Finder.statements,
    CursorKind.FOR_STMT: Finder.last_statement,
    CursorKind.CASE_STMT: Finder.last_statement,
    CursorKind.DEFAULT_STMT: Finder.last_statement,
    CursorKind.LABEL_STMT: Finder.last_statement,
    CursorKind.INTEGER_LITERAL: Finder.literal,
    CursorKind.CXX_BOOL_LITERAL_EXPR: Finder.truth,
    CursorKind.RETURN_STMT: Finder.returned,
    CursorKind.CALL_EXPR: Finder.call,
    CursorKind.VAR_DECL: Finder.variable,
}


def span(node):
    return node.extent.start.offset, node.extent.end.offset


def is_integer(node):
    return node.type.get_canonical().kind in INTEGERS


def find(root, commands, folders):
    """All sites in the sources and headers of `folders`, below `root`, in a fixed order, each with an id of its own.
    commands: {source, relative to root: arguments of its compilation, run in the build folder}."""
    sites, done = [], set()
    for source in sorted(commands):
        if is_below(source, folders) and "/check/" not in source:
            sites += in_unit(root, source, commands[source], folders, done)
    sites.sort(key=lambda s: (s.file, s.begin, s.end, s.operator, s.text))
    seen, unique = {}, []
    for site in sites:
        if unique and (site.file, site.begin, site.end, site.text) == (
                unique[-1].file, unique[-1].begin, unique[-1].end, unique[-1].text):
            continue
        number = seen[site.key()] = seen.get(site.key(), 0) + 1
        site.id = hashlib.sha256("\0".join((*site.key(), str(number))).encode()).hexdigest()[:10]
        unique.append(site)
    return unique


def is_below(name, folders):
    return any(name.startswith(folder + "/") for folder in folders)


def in_unit(root, source, arguments, folders, done):
    path = os.path.join(root, source)
    unit = Index.create().parse(path, args=arguments + ["-DNDEBUG"],
                                options=TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
    # The compiler's own headers may be of another version.
    errors = [d for d in unit.diagnostics
              if d.severity >= 3 and d.location.file and d.location.file.name.startswith(root + os.sep)]
    if errors:
        raise SystemExit(f"mutants: libclang can't read {source}: {errors[0]}")
    finders, fresh = {}, set()
    macros = {}
    for node in unit.cursor.get_children():
        place = node.location.file
        if place is None:
            continue
        name = os.path.relpath(os.path.realpath(place.name), root)
        if not is_below(name, folders) or name in done:
            continue
        if node.kind == CursorKind.MACRO_INSTANTIATION:
            macros.setdefault(name, []).append(span(node))
        elif node.kind in (CursorKind.FUNCTION_DECL, CursorKind.VAR_DECL, CursorKind.ENUM_DECL):
            if name not in finders:
                with open(os.path.join(root, name), "rb") as file:
                    text = file.read()
                finders[name] = Finder(name, text, [(a, b) for a, b in macros.get(name, []) if b"(" in text[a:b]])
            fresh.add(name)
            finders[name].walk(node)
    done |= fresh
    return [site for finder in finders.values() for site in finder.sites]
