"""``runbook completion``: the names and options of the command, for a shell to complete."""

import argparse

import shtab

from runbook_lib.cli.parser import parser


def command(options: argparse.Namespace) -> int:
    """Print the script of a shell; return 0."""
    print(shtab.complete(parser(), options.shell))
    return 0
