"""Parse PTX modules: directives, declarations, functions and statements.

The parser checks syntax and does not interpret opcodes: an unknown opcode is parsed like any other, and rejected when
it would run.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod

from warpfrag.errors import PtxError, quote
from warpfrag.ptx.reader import ptx_constants, syntax
from warpfrag.ptx.reader.lexer import MAX_NESTED, Token, tokens

OLDEST, NEWEST = (6, 0), (9, 4)
LINKAGE = {".visible", ".extern", ".weak", ".common"}
SPACES = {".reg", ".param", ".shared", ".global", ".const", ".local", ".sreg", ".tex"}
IGNORED_LINES = {".loc", ".file"}  # directives that end at the end of their line
IGNORED_STATEMENTS = {".pragma", ".callprototype"}  # directives that end at a semicolon
MAX_REGISTERS = 1 << 20
MAX_ALIGN = 1 << 20
MAX_DEPTH = 64
NO_NAMES: Mapping[str, str] = {}


def parse(text: str, line: int = 1, names: Mapping[str, str] = NO_NAMES) -> syntax.ModuleSyntax:
    """Parse PTX source that starts at line `line`, renaming `names`; bodies are parsed on first use."""
    with suppress(PtxError):
        return Parser(tokens(text, line, whole_bodies=True), names).module()
    return Parser(tokens(text, line), names).module()  # parse again, token by token, to locate the error


def read_body(text: str, line: int, names: Mapping[str, str]) -> syntax.ScopeItems:
    """Parse a function body that starts at line `line`, and return its statements."""
    return Parser(tokens(text, line), names).scope().items


def check_names(functions: list[syntax.FunctionDecl]) -> None:
    """Raise an error if two functions with the same name have bodies; repeated declarations are allowed."""
    bodies: dict[str, int] = {}
    for function in functions:
        if function.body is not None:
            if function.name in bodies:
                first = f"the first is at line {bodies[function.name]}"
                raise PtxError(function.line, f"{quote(function.name)} has a second body; {first}")
            bodies[function.name] = function.line


class Parser:
    """A cursor over tokens; each method parses one construct."""

    def __init__(self, cut: Iterable[Token], names: Mapping[str, str] = NO_NAMES) -> None:
        """Create a parser at the first token; `names` maps names to their replacements."""
        self.names = names
        self.tokens = list(cut)
        if names:
            self.tokens = [token._replace(text=names.get(token.text, token.text)) for token in self.tokens]
        self.at = 0
        self.depth = 0
        self.in_call = False  # True in a call, where parentheses enclose operands

    # --- the cursor

    @property
    def next(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def take(self) -> Token:
        """Consume and return the next token."""
        token = self.tokens[self.at]
        if token.kind == "body":
            raise self.error("no body")
        if token.kind != "end":
            self.at += 1
        return token

    def takes(self, *texts: str) -> bool:
        """Consume the next token and return True if it is one of `texts`."""
        if self.next.text in texts and self.next.kind != "text":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Consume and return the given token, or raise an error if a different token is next."""
        if self.next.text != text:
            raise self.error(f"{text!r}")
        return self.take()

    def expect_kind(self, kind: str, label: str) -> Token:
        """Consume and return a token of this kind, or raise an error that names `label`."""
        if self.next.kind != kind:
            raise self.error(label)
        return self.take()

    def error(self, expected: str) -> PtxError:
        """Return the error for an unexpected token; `expected` describes the token that should come next."""
        return PtxError(self.next.line, f"expected {expected}, got {self.next.quoted}")

    def skip_line(self) -> None:
        """Skip the rest of the line."""
        line = self.tokens[self.at - 1].line
        while self.next.line == line and self.next.kind != "end":
            self.take()

    def skip_statement(self) -> None:
        """Skip everything up to the next semicolon."""
        while not self.takes(";"):
            if self.next.kind == "end":
                raise self.error("';'")
            self.take()

    def skips(self) -> bool:
        """Skip a debug directive if it is next, and return True if it was."""
        if self.takes(*IGNORED_LINES):
            self.skip_line()
        elif self.takes(*IGNORED_STATEMENTS):
            self.skip_statement()
        else:
            return False
        return True

    def skip_braces(self) -> None:
        """Skip a section in braces."""
        if self.next.kind == "body":  # the braces are empty
            self.at += 1
            return
        self.expect("{")
        depth = 1
        while depth:
            token = self.take()
            if token.kind == "end":
                raise self.error("'}'")
            depth += (token.text == "{") - (token.text == "}")

    # --- the module

    def module(self) -> syntax.ModuleSyntax:
        """Parse the whole file."""
        version, target, size, is_debug = self.version(), "", 64, False
        variables: list[syntax.VariableDecl] = []
        functions: list[syntax.FunctionDecl] = []
        aliases: dict[str, str] = {}
        while self.next.kind != "end":
            token = self.next
            if self.takes(".target"):
                target = self.expect_kind("word", "a target").text
                while self.takes(","):
                    is_debug = self.take().text == "debug" or is_debug
            elif self.takes(".address_size"):
                size = self.plain_integer()
            elif self.skips():
                pass
            elif self.takes(".alias"):
                other = self.expect_kind("word", "a function name").text
                self.expect(",")
                aliases[other] = self.expect_kind("word", "a function name").text
            elif self.takes(".section"):
                self.take()
                self.skip_braces()
            elif token.text in LINKAGE or token.text in SPACES or token.text in {".entry", ".func"}:
                self.definition(variables, functions)
            elif not self.takes(";"):
                raise self.error("a module directive")
        if not target:
            raise PtxError(self.next.line, "expected a .target, got none")
        if size not in {32, 64}:
            raise PtxError(0, f"expected .address_size 32 or 64, got {size}")
        check_names(functions)
        return syntax.ModuleSyntax(version, target, size, tuple(variables), tuple(functions), aliases, is_debug)

    def version(self) -> tuple[int, int]:
        """Parse the .version directive."""
        self.expect(".version")
        token = self.take()
        numbers = re.fullmatch(r"(\d+)\.(\d+)", token.text)
        if numbers is None:
            raise PtxError(token.line, f"expected a version such as 8.7, got {token.quoted}")
        version = int(numbers[1][:6]), int(numbers[2][:6])
        if not OLDEST <= version <= NEWEST:
            known = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
            raise PtxError(token.line, f"expected PTX {known}, got {token.text}")
        return version

    def definition(self, variables: list[syntax.VariableDecl], functions: list[syntax.FunctionDecl]) -> None:
        """Parse a variable or a function, including its linkage."""
        linkage = ""
        while self.next.text in LINKAGE:
            linkage = self.take().text[1:]
        if self.next.text in {".entry", ".func"}:
            functions.append(self.function(linkage))
        else:
            variables += self.declaration(linkage)

    def function(self, linkage: str) -> syntax.FunctionDecl:
        """Parse an entry or a function, with or without a body."""
        token = self.take()
        is_entry = token.text == ".entry"
        self.attribute()
        while self.takes(".noreturn"):
            pass
        results = () if is_entry or self.next.text != "(" else self.parameters()
        name = self.expect_kind("word", "a function name").text
        parameters = self.parameters() if self.next.text == "(" else ()
        directives: dict[str, tuple[int, ...]] = {}
        while self.next.kind == "directive":
            key = self.take().text[1:]
            values = []
            if key == "pragma":
                self.skip_statement()
                continue
            while self.next.kind == "number":
                values.append(self.plain_integer())
                self.takes(",")
            directives[key] = tuple(values)
        body = None
        if not self.takes(";"):
            body = self.scope()
        return syntax.FunctionDecl(token.line, name, is_entry, parameters, results, linkage, directives, body)

    def parameters(self) -> tuple[syntax.VariableDecl, ...]:
        """Parse parameters in parentheses."""
        parameters: list[syntax.VariableDecl] = []
        self.expect("(")
        while not self.takes(")"):
            if self.next.text not in {".param", ".reg"}:
                raise self.error("a .param")
            parameters += self.variables("", ends={",", ")"})
            if not self.takes(","):
                self.expect(")")
                break
        return tuple(parameters)

    def attribute(self) -> None:
        """Skip .attribute(...)."""
        while self.takes(".attribute"):
            self.expect("(")
            while not self.takes(")"):
                if self.take().kind == "end":
                    raise self.error("')'")

    # --- declarations

    def declaration(self, linkage: str = "") -> list[syntax.VariableDecl]:
        """Parse a declaration of registers or memory, up to its semicolon."""
        variables = self.variables(linkage, ends={";"})
        self.expect(";")
        return variables

    def variables(self, linkage: str, ends: set[str]) -> list[syntax.VariableDecl]:
        """Parse one or more variables that share a state space and a type."""
        token = self.take()
        space, vector, align, pointer, kind = token.text[1:], 1, 0, False, ""
        while self.next.kind == "directive":
            word = self.take().text
            if word == ".align":
                wanted = self.alignment()
                # after .ptr, this is the alignment of the data, not of the variable
                align = align if pointer else wanted
            elif word == ".ptr":
                pointer = True
            elif word in {".v2", ".v4", ".v8"}:
                vector = int(word[2:])
            elif word == ".attribute":
                self.at -= 1
                self.attribute()
            elif not (word in SPACES or word.split("::", maxsplit=1)[0] in SPACES):  # after .ptr
                kind = word[1:]
        if not kind:
            raise self.error(f"the type of a .{space}")
        variables: list[syntax.VariableDecl] = []
        while True:
            like = syntax.VariableDecl(token.line, "", space, kind, vector, None, align, pointer, linkage)
            variables.append(self.variable(like))
            if self.next.text in ends or not self.takes(","):
                return variables

    def alignment(self) -> int:
        """Parse the number after .align."""
        token = self.next
        align = self.plain_integer()
        if align & (align - 1) or not 1 <= align <= MAX_ALIGN:
            raise PtxError(token.line, f"expected an alignment that is a power of two up to {MAX_ALIGN}, got {align}")
        return align

    def variable(self, like: syntax.VariableDecl) -> syntax.VariableDecl:
        """Parse one declarator: a variable, a range of registers, or an array with initial values."""
        token = self.expect_kind("word", f"the name of a .{like.space}")
        count, dims = None, None
        if self.takes("<"):
            count = self.plain_integer()
            self.expect(">")
            if like.space != "reg" or count > MAX_REGISTERS:
                raise PtxError(
                    token.line, f"expected up to {MAX_REGISTERS} registers in .reg, got {count} in .{like.space}"
                )
        while self.takes("["):
            dims = (*(dims or ()), 0 if self.next.text == "]" else self.plain_integer())
            self.expect("]")
        initial: tuple[syntax.OperandSyntax | syntax.MaskedAddress, ...] = ()
        if self.takes("="):
            initial = tuple(self.initial())
            if dims and not dims[0]:  # the number of values gives the length
                dims = (len(initial) // max(1, prod(dims[1:])), *dims[1:])
        return replace(like, line=token.line, name=token.text, dims=dims, initial=initial, count=count)

    def initial(self) -> list[syntax.OperandSyntax | syntax.MaskedAddress]:
        """Parse a variable's initial values; nested braces are flattened, and sampler settings skipped."""
        if not self.takes("{"):
            if self.next.kind == "word" and self.tokens[self.at + 1].text == "=":
                for _ in range(3):
                    self.take()
                return []
            return [self.initial_value()]
        values: list[syntax.OperandSyntax | syntax.MaskedAddress] = []
        self.deeper()
        while not self.takes("}"):
            values += self.initial()
            if not self.takes(","):
                self.expect("}")
                break
        self.depth -= 1
        return values

    def initial_value(self) -> syntax.OperandSyntax | syntax.MaskedAddress:
        """Parse an initial value: a number, an address such as generic(x)+4, or part of one, such as 0xFF00(x)."""
        if self.next.kind == "number" and self.tokens[self.at + 1].text == "(":
            mask = self.plain_integer()
            self.expect("(")
            inner = self.initial_value()
            self.expect(")")
            if not isinstance(inner, syntax.SymbolRef):
                raise self.error("a variable in a mask")
            return syntax.MaskedAddress(inner, mask)
        if self.takes("generic"):
            self.expect("(")
            name = self.operand()
            self.expect(")")
            if not isinstance(name, syntax.SymbolRef):
                raise self.error("a variable in generic()")
            return syntax.SymbolRef(name.text, name.offset + self.added())
        return self.operand()

    # --- bodies

    def deeper(self) -> None:
        """Enter a nested scope; raise an error if scopes are nested too deeply."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise PtxError(self.next.line, f"expected at most {MAX_DEPTH} nested braces")

    def scope(self) -> syntax.Scope:
        """Parse a body in braces."""
        token = self.next
        if token.kind == "body" and self.depth + MAX_NESTED < MAX_DEPTH // 2:
            self.at += 1
            return syntax.Scope(read=partial(read_body, token.text, token.line, self.names))
        self.expect("{")
        self.deeper()
        items: list[syntax.Statement | syntax.Label | syntax.VariableDecl | syntax.Scope] = []
        while not self.takes("}"):
            token = self.next
            if token.text == "{" or token.kind == "body":
                items.append(self.scope())
            elif token.kind == "directive":
                items += self.body_directive()
            elif token.text == "@" or (token.kind == "word" and self.tokens[self.at + 1].text != ":"):
                items.append(self.statement())
            elif token.kind == "word":
                items.append(self.label())
            elif not self.takes(";"):
                raise self.error("an instruction or '}'")
        self.depth -= 1
        return syntax.Scope(tuple(items))

    def body_directive(self) -> list[syntax.VariableDecl]:
        """Parse a declaration, or skip a debug directive."""
        if self.skips():
            return []
        if self.next.text in LINKAGE:
            linkage = self.take().text[1:]
            return self.declaration(linkage)
        if self.next.text.split("::", maxsplit=1)[0] in SPACES:
            return self.declaration()
        raise self.error("a declaration or an instruction")

    def label(self) -> syntax.Label:
        """Parse a label, including its table of branch targets if there is one."""
        token = self.take()
        self.expect(":")
        targets: list[str] = []
        if self.takes(".branchtargets", ".calltargets"):
            targets.append(self.expect_kind("word", "a label").text)
            while self.takes(","):
                targets.append(self.expect_kind("word", "a label").text)
            self.expect(";")
        elif self.takes(".callprototype"):
            self.skip_statement()
        return syntax.Label(token.line, token.text, tuple(targets))

    def statement(self) -> syntax.Statement:
        """Parse one instruction: guard, opcode and operands."""
        guard, negated = None, False
        if self.takes("@"):
            negated = self.takes("!")
            guard = syntax.SymbolRef(self.expect_kind("word", "a predicate").text)
        token = self.expect_kind("word", "an opcode")
        self.in_call = token.text.split(".", maxsplit=1)[0] == "call"
        operands: list[syntax.OperandSyntax] = []
        if not self.takes(";"):
            operands.append(self.result_operand())
            while self.takes(","):
                operands.append(self.result_operand())
            self.expect(";")
        return syntax.Statement(token.line, token.text, tuple(operands), guard, negated)

    # --- operands

    def result_operand(self) -> syntax.OperandSyntax:
        """Parse an operand, or two results that are separated by a bar."""
        operand = self.operand()
        return syntax.ResultPair(operand, self.operand()) if self.takes("|") else operand

    def operand(self) -> syntax.OperandSyntax:
        """Parse an operand of an instruction."""
        token = self.next
        if token.text == "{":
            return syntax.BracedList(self.list_of("{", "}"))
        if token.text == "[":
            return self.address()
        if token.text == "(" and (self.in_call or self.begins_group()):
            return syntax.ArgumentList(self.list_of("(", ")"))
        if token.text == "!" and self.tokens[self.at + 1].kind == "word":
            self.take()
            return syntax.NegatedPredicate(syntax.SymbolRef(self.take().text))
        after = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if token.text == "-" and after.kind == "word" and after.text not in ptx_constants.NAMED_NUMBERS:
            self.take()
            return syntax.NegatedRegister(syntax.SymbolRef(self.take().text))
        if token.kind == "word" and token.text not in ptx_constants.NAMED_NUMBERS:
            self.take()
            return syntax.SymbolRef(token.text, self.added())
        return self.expression()

    def begins_group(self) -> bool:
        """Return True if a parenthesis opens a call's operand list, not a constant expression."""
        after = self.tokens[self.at + 1]
        return after.text == ")" or (after.kind == "word" and after.text not in ptx_constants.NAMED_NUMBERS)

    def list_of(self, opening: str, closing: str) -> tuple[syntax.OperandSyntax, ...]:
        """Parse an operand list between the delimiters `opening` and `closing`."""
        self.expect(opening)
        self.deeper()
        items: list[syntax.OperandSyntax] = []
        while not self.takes(closing):
            items.append(self.operand())
            if not self.takes(","):
                self.expect(closing)
                break
        self.depth -= 1
        return tuple(items)

    def address(self) -> syntax.Address:
        """Parse a memory address."""
        self.expect("[")
        base = self.operand()
        if not isinstance(base, syntax.SymbolRef | syntax.IntegerLiteral):
            raise self.error("a register, a variable or a number in brackets")
        coordinates: list[syntax.OperandSyntax] = []
        while self.takes(","):
            coordinates.append(self.operand())
        self.expect("]")
        return syntax.Address(base, tuple(coordinates))

    def added(self) -> int:
        """Parse the offsets after a name (+4, -8, +4+8) and return their sum, or 0."""
        if not self.takes("+") and self.next.text != "-":
            return 0
        return ptx_constants.integer(self.integer()).value

    # --- constants

    def integer(self) -> int:
        """Parse an integer constant expression."""
        line = self.next.line
        return ptx_constants.value_of(self.expression(), line)

    def plain_integer(self) -> int:
        """Parse an integer literal; directives do not allow expressions."""
        token = self.next
        if self.takes(*ptx_constants.NAMED_NUMBERS):
            return ptx_constants.NAMED_NUMBERS[token.text]
        self.expect_kind("number", "a number")
        return ptx_constants.value_of(ptx_constants.literal(token.text, token.line), token.line)

    def expression(self) -> ptx_constants.ConstantSyntax:
        """Parse a constant expression, in which ?: has the lowest precedence."""
        line = self.next.line
        value = self.binary(1)
        if not self.takes("?"):
            return value
        self.deeper()
        chosen = self.expression()
        self.expect(":")
        other = self.expression()
        self.depth -= 1
        # value_of raises an error for floats
        condition, *_ = [ptx_constants.value_of(part, line) for part in (value, chosen, other)]
        return chosen if condition else other

    def binary(self, level: int) -> ptx_constants.ConstantSyntax:
        """Parse operands joined by binary operators whose precedence is at least `level`."""
        value = self.unary()
        while self.next.kind == "sign" and ptx_constants.PRECEDENCE.get(self.next.text, 0) >= level:
            sign = self.take()
            value = ptx_constants.binary(
                sign.text, value, self.binary(ptx_constants.PRECEDENCE[sign.text] + 1), sign.line
            )
        return value

    def unary(self) -> ptx_constants.ConstantSyntax:
        """Parse a number with preceding signs and casts, or an expression in parentheses."""
        token = self.next
        self.deeper()
        value: ptx_constants.ConstantSyntax
        if self.takes("-", "+", "~", "!"):
            value = ptx_constants.unary(token.text, self.unary(), token.line)
        elif self.takes("("):
            kind = self.take().text if self.next.kind == "directive" else ""
            if kind:
                self.expect(")")
                value = ptx_constants.cast(kind, self.unary(), token.line)
            else:
                value = self.expression()
                self.expect(")")
        elif self.takes(*ptx_constants.NAMED_NUMBERS):
            value = syntax.IntegerLiteral(ptx_constants.NAMED_NUMBERS[token.text])
        else:
            self.expect_kind("number", "a number")
            value = ptx_constants.literal(token.text, token.line)
        self.depth -= 1
        return value
