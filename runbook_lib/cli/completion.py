"""``runbook completion``: shell completion of the command's names and options."""

import argparse
import shlex

import shtab

from runbook_lib.cli.parser import leaves, parser


def command(options: argparse.Namespace) -> int:
    """Print the completion script for a shell; return 0."""
    print(_fish() if options.shell == "fish" else shtab.complete(parser(), options.shell))
    return 0


def _fish() -> str:
    """Return the script for fish, which shtab does not write: one line for each name and option."""
    lines = []
    for name, leaf in leaves(parser()):
        first, _, second = name.partition(" ")
        lines.append(_fish_line("__fish_use_subcommand", f"-x -a {first}"))
        condition = f"__fish_seen_subcommand_from {first}"
        if second:
            lines.append(_fish_line(f"{condition}; and not __fish_seen_subcommand_from {second}", f"-x -a {second}"))
            condition += f"; and __fish_seen_subcommand_from {second}"
        for action in leaf._actions:
            words = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in action.option_strings]
            if action.choices:
                words.append(f"-x -a '{' '.join(map(str, action.choices))}'")
            if words:
                words.append(f"-d {shlex.quote((action.help or '').replace('%%', '%'))}")
                lines.append(_fish_line(condition, " ".join(words)))
    return "\n".join(dict.fromkeys(lines))


def _fish_line(condition: str, completion: str) -> str:
    return f"complete -c runbook -n '{condition}' {completion}"
