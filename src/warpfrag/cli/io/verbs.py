"""Verbs as typed functions: the signature and docstring of a function declare its command.

A positional parameter is an argument, and a keyword-only parameter is an option. The annotation is the type of its
value: `int`, `str`, `bool` (a flag), `Literal` (a choice), `X | None`, `tuple[X, X]` (two values), `tuple[X, ...]` (any
number), or an alias of `arguments`. A named tuple is a group of options, one for each field. In the docstring, lines
`name (METAVAR): text` below `Options:` are the help of options, lines below `For example:` are examples, and the text
above is the help of the verb. A verb returns an `Answer`: `--json` prints its facts; otherwise its function prints
text. A verb that returns None writes files and has no `--json`.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from warpfrag.cli.io.output import DONE, echo, print_json
from warpfrag.errors import quote

NEGATIVE = re.compile(r"-\d+")
INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
LARGEST = 10**18 - 1
OPTION_TEXT = re.compile(r"^    (\w+)(?: \(([^)]+)\))?: (.*(?:\n     .*)*)", re.MULTILINE)
SHORT = {"output": "-o", "long": "-l"}

Facts = TypeVar("Facts")


class Answer(NamedTuple, Generic[Facts]):
    """The facts that --json prints, the function that prints them as text, and the exit status."""

    facts: Facts
    show: Callable[[], object]
    status: int = DONE


def facts_of(facts: type[Facts], source: object, **more: object) -> Facts:
    """Create a named tuple from the attributes of an object and from keyword arguments."""
    names = facts._fields  # type: ignore[attr-defined] # a named tuple
    return facts(**{name: more[name] if name in more else getattr(source, name) for name in names})


class Param(NamedTuple):
    """The metavar, parser, shell completion and default help of a parameter type."""

    metavar: str = ""
    read: Callable[[str], object] | click.ParamType[Any] | None = None
    complete: Callable[[click.Context, click.Parameter, str], list[Any]] | None = None
    help: str = ""


def integer(low: int = -LARGEST, high: int = LARGEST) -> Callable[[object], int]:
    """Return a function that parses integers in a range."""

    def integer(value: object) -> int:
        if not INTEGER.fullmatch(text := str(value).strip()):
            raise click.BadParameter(f"{quote(value)} is not a valid integer")
        if len(text) > len(str(-LARGEST)) or not low <= int(text) <= high:
            raise click.BadParameter(f"{quote(value)} is not in the range {low}..{high}")
        return int(text)

    return integer


class PipeSafeCommand(click.Command):
    """A command that prints its help with `echo`, because click ignores a broken pipe."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option --help."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = print_and_exit(lambda context: context.get_help())
        return option


def print_and_exit(text: Callable[[click.Context], str]) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Return a callback for an option that prints text instead of running the command."""

    def callback(context: click.Context, _parameter: click.Parameter, is_set: bool) -> None:  # noqa: FBT001 (click's)
        if is_set and not context.resilient_parsing:
            echo(text(context))
            context.exit()

    return callback


class VerbCommand(PipeSafeCommand):
    """A command with examples at the end of its help; it reads -1 as a number, not as an option."""

    examples: tuple[str, ...] = ()
    function: Callable[..., Answer[Any] | None]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; if it contains a negative number, unknown options are treated as arguments.

        Raise an error for an option that is given twice but takes one value, because click ignores all but the last.
        """
        ctx.ignore_unknown_options = any(NEGATIVE.fullmatch(word) for word in args)
        given = Counter(self.make_parser(ctx).parse_args([*args])[2])
        for param, count in given.items() if not ctx.resilient_parsing else ():
            if count > 1 and isinstance(param, click.Option) and not (param.multiple or param.is_flag):
                raise click.UsageError(f"{param.opts[0]} is given {count} times; expected one value", ctx)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click's)
        """Write the examples unchanged."""
        with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
            formatter.write("".join(f"  {example}\n" for example in self.examples))


def verb(function: Callable[..., Answer[Any] | None]) -> VerbCommand:
    """Turn a function into a verb's command."""
    name = function.__name__.rstrip("_").replace("_", "-")
    about, texts, examples = _documented(function)
    declared = [
        (parameter, option)
        for parameter in _parameters(function)
        for option in (_parameters(parameter.annotation) if _is_group(parameter.annotation) else [parameter])
    ]

    def run(*, as_json: bool = False, **values: object) -> int:
        groups: dict[str, dict[str, object]] = {}
        for parameter, option in declared:
            if option is not parameter:
                groups.setdefault(parameter.name, {})[option.name] = values.pop(option.name)
        hints = {parameter.name: parameter.annotation for parameter, _ in declared}
        answer = function(**values, **{group: hints[group](**fields) for group, fields in groups.items()})
        if answer is None:
            return DONE
        if as_json:
            print_json(name, answer.facts)
        else:
            answer.show()
        return answer.status

    command = VerbCommand(name, callback=run, help=about, context_settings={"help_option_names": ["-h", "--help"]})
    for parameter, option in declared:
        known = texts if option is parameter else _documented(parameter.annotation)[1] | texts
        command.params.append(_click_parameter(option, *known.get(option.name, ("", ""))))
    if function.__annotations__["return"] != "None":
        command.params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."))
    command.examples, command.function = examples, function
    return command


def _documented(function: Callable[..., object]) -> tuple[str, dict[str, tuple[str, str]], tuple[str, ...]]:
    """Return the help in a docstring, the metavar and help of each option below `Options:`, and the examples."""
    text, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\nFor example:\n")
    about, _, options = text.partition("\nOptions:\n")
    known = {match[1]: (match[2], " ".join(match[3].split())) for match in OPTION_TEXT.finditer(options)}
    return about, known, tuple(examples.replace("\n" + " " * 8, " ").replace("    ", "", 1).split("\n    "))


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the parameters with evaluated annotations; fields of named tuples become keyword-only parameters."""
    if _is_group(function):
        hints = get_type_hints(function, include_extras=True)
    else:  # without the return type, which may not be imported
        annotations = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
        hints = get_type_hints(SimpleNamespace(__annotations__=annotations), function.__globals__, include_extras=True)
    parameters = [each.replace(annotation=hints[each.name]) for each in inspect.signature(function).parameters.values()]
    return [each.replace(kind=each.KEYWORD_ONLY) for each in parameters] if _is_group(function) else parameters


def _is_group(hint: Any) -> bool:  # noqa: ANN401 (a type)
    return hasattr(hint, "_fields")


def _click_parameter(parameter: inspect.Parameter, metavar: str, text: str) -> click.Parameter:
    """Return the argument or option that a parameter declares."""
    has_default = parameter.default is not parameter.empty
    hint = _not_none(parameter.annotation)
    values = get_args(hint) if get_origin(hint) is tuple else ()
    many = values[-1:] == (...,)
    hint = _not_none(values[0]) if values else hint
    base, param = get_args(hint) if get_origin(hint) is Annotated else (hint, Param())
    settings: dict[str, Any] = {"type": _type(base, param), "shell_complete": param.complete}
    settings |= {"default": parameter.default} if has_default else {}
    settings["metavar"] = metavar or param.metavar or ("N" if base is int else None)
    if parameter.kind is not parameter.KEYWORD_ONLY:
        shown = (param.metavar or "{}").format(parameter.name.rstrip("_").upper())
        settings["metavar"] = (shown if not has_default else f"[{shown}]") + "..." * many
        nargs = -1 if many else len(values) or 1
        return click.Argument([parameter.name], required=not has_default, nargs=nargs, **settings)
    spelled = parameter.name.rstrip("_").replace("_", "-")
    names = [f"--{spelled}", parameter.name, *([f"-{spelled}"] if len(spelled) == 1 else [])]
    names += [SHORT[spelled]] if spelled in SHORT else []
    if base is bool:
        return click.Option(names, is_flag=True, help=text or param.help)
    settings |= {"multiple": True} if many else {"nargs": len(values) or 1}
    shows_default = has_default and parameter.default not in (None, (), "")
    return click.Option(
        names, required=not has_default, show_default=shows_default, help=text or param.help, **settings
    )


def _not_none(hint: Any) -> Any:  # noqa: ANN401 (types)
    """Return X for X | None."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    (inner,) = (choice for choice in get_args(hint) if choice is not NoneType)
    return inner


def _type(base: Any, param: Param) -> Any:  # noqa: ANN401 (click's)
    """Return the click type of a value."""
    if get_origin(base) is Literal:
        return click.Choice(get_args(base))
    return param.read or (integer() if base is int else str)
