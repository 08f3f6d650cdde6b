"""The options of the command ``runbook``.  The modules of the subcommands are not imported here."""

import argparse
from collections.abc import Iterator
from typing import TypeAlias

_EXAMPLES = {
    "check": "runbook check ~/Megatron-LM --ref main --ref 'core_r*'",
    "run": "runbook run bump -p tag 26.05-py3 -p wait True",
    "lab": "runbook lab ~/runbooks",
    "status": "runbook status --audit ~/audit",
    "review": "runbook review 26.05-py3",
    "audit": "runbook audit verify ~/audit",
    "golden": "runbook golden diff main my-branch --repo ~/Megatron-LM",
    "image": "runbook image diff 26.02-py3 26.04-py3",
    "pins": "runbook pins find --write ~/my-repository",
    "watch": "runbook watch ~/Megatron-LM --cool-down 7",
    "practice": "runbook practice start",
    "why": "runbook why job.log",
}

#: These may also follow the notebook of ``runbook run``: papermill has no options of these names.
QUIET = ("-q", "--quiet")
JSON = "--json"
#: The commands whose examples are in the help of ``runbook``.
_FIRST = ("run", "review", "status", "check")
#: The commands whose exit status is an answer, so that ``--quiet`` leaves one.
_ANSWERS = ("audit verify", "check", "golden diff", "image driver", "run", "watch")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def parser() -> argparse.ArgumentParser:
    """Return the parser with all subcommands."""
    parser = argparse.ArgumentParser(
        prog="runbook",
        description="Move a repository's pins of its base image to a new one, and show the status.",
        epilog="Examples, first a bump in practice on this machine:\n"
        + "".join(f"  {_EXAMPLES[name]}\n" for name in _FIRST)
        + "\n`runbook COMMAND --help` shows the options and an example of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_VersionAction, nargs=0, help="show the version, and the commit of a checkout"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parts = (_add_check, _add_notebooks, _add_archive, _add_golden, _add_image, _add_pins, _add_practice)
    for add in (*parts, _add_why, _add_watch):
        add(commands)
    for name, example in _EXAMPLES.items():
        commands.choices[name].epilog = f"Example: {example}"
    for name, command in leaves(parser):
        _add_amount(command, quiet=name in _ANSWERS)
    commands.metavar = f"{{{','.join(commands.choices)}}}"  # also used in the error for a missing subcommand
    return parser


def leaves(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command that can be run, such as ``check`` and ``audit verify``, and its parser."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for part, command in action.choices.items():
            yield from leaves(command, f"{name} {part}".strip())
    if not nested:
        yield name, parser


def _add_amount(command: argparse.ArgumentParser, *, quiet: bool) -> None:
    """Add ``--verbose``, and ``--quiet`` to a command whose exit status is an answer."""
    amount = command.add_mutually_exclusive_group()
    if quiet:
        amount.add_argument(*QUIET, action="store_true", help="print nothing if the exit status is 0")
    more = "print the table of all pins in any case, and " if command.prog == "runbook check" else "print "
    amount.add_argument("-v", "--verbose", action="store_true", help=f"{more}where in the program an error came from")


class _VersionAction(argparse.Action):
    """The option ``--version``, which runs git only when given."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from runbook_lib.system.provenance import library

        about = library()
        version = f"base-image-runbook {about['version']}"
        if about["commit"]:
            version += f" (commit {about['commit'][:12]}{', changed' if about['dirty'] else ''})"
        print(f"{version}, Python {about['python']}")
        parser.exit()


def _add_check(commands: Commands) -> None:
    check = commands.add_parser(
        "check",
        help="check that all pins of the base image agree",
        description="Check that all pins of the base image agree. Exit status: 0 they do, 1 they do not, 2 unknown.",
    )
    check.add_argument(
        "repo", nargs="?", default=".", metavar="REPO", help="a clone, possibly bare (default: the current one)"
    )
    check.add_argument(
        "--ref",
        action="append",
        default=[],
        help="check this ref without checking it out; repeatable; a pattern such as 'origin/core_r*' selects several "
        "branches, and '^NAME' leaves one out (default: the files of the work tree)",
    )
    check.add_argument("--strict", action="store_true", help="also fail for outdated informational pins")
    check.add_argument(
        "--tag",
        default="",
        help="the tag that the pins should have, such as 26.04-py3; NAME:TAG checks one of several images",
    )
    check.add_argument(
        "--image-type", choices=("dev", "lts"), default="dev", help="the image type whose pins should have --tag"
    )
    check.add_argument(
        "--pins",
        default="",
        metavar="WHOSE",
        help="whose pins: megatron-lm, megatron-bridge, ml-containers, or the path of a pins file "
        "(default: the clone's own file, else the repository of its remote)",
    )
    check.add_argument("--json", action="store_true", help="print JSON")


def _add_notebooks(commands: Commands) -> None:
    run = commands.add_parser(
        "run",
        help="run a notebook headlessly",
        description="Run a notebook headlessly, as papermill does: runbook run bump -p tag 26.04-py3. Exit status: 0 "
        "done, waiting or previewed, 1 failed, 2 wrong usage.",
    )
    run.add_argument(
        "notebook", nargs="?", default="", metavar="NOTEBOOK", help="name or path (default: list the names)"
    )
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…", help="options and parameters of papermill")
    run.add_argument("--json", action="store_true", help="print JSON, with each condition of the plan")

    lab = commands.add_parser(
        "lab",
        help="open the notebooks in JupyterLab",
        description="Open the notebooks in JupyterLab. If the package is installed, they are first copied to a folder.",
    )
    lab.add_argument(
        "folder", nargs="?", default="", metavar="DIR", help="the folder (default: below the user's data folder)"
    )
    lab.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…", help="options of JupyterLab")


def _add_archive(commands: Commands) -> None:
    status = commands.add_parser("status", help="show the status of each bump")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument("--audit", default="", metavar="DIR", help="the archive (default: $RUNBOOK_AUDIT, else audit/)")

    review = commands.add_parser(
        "review",
        help="make the decisions that a bump waits for, card by card",
        description="Show each decision that a bump waits for, read the answers, and run the bump with them. Exit "
        "status: 0 all decided, 1 some decisions are open.",
        epilog="Example: runbook review 26.05-py3",
    )
    review.add_argument(
        "tag", nargs="?", default="", metavar="TAG", help="the tag of the bump (default: the newest bump that waits)"
    )
    review.add_argument("--audit", default="", metavar="DIR", help="the archive (default: $RUNBOOK_AUDIT, else audit/)")

    audit = commands.add_parser("audit", help="verify an archive of records, or add a notebook to one")
    actions = audit.add_subparsers(dest="action", required=True, metavar="{verify,add}")
    verify = actions.add_parser("verify", help="check every record against its commit, digests and history")
    verify.add_argument("dir", nargs="?", default="", metavar="DIR", help="the archive")
    add = actions.add_parser("add", help="add the executed notebook to the record of a run without the engine")
    add.add_argument("notebook", metavar="OUT.ipynb", help="the executed notebook, which names its record")
    add.add_argument("--audit", default="", metavar="DIR", help="the archive (default: $RUNBOOK_AUDIT, else audit/)")


def _add_golden(commands: Commands) -> None:
    golden = commands.add_parser("golden", help="judge changes of golden values")
    actions = golden.add_subparsers(dest="action", required=True, metavar="{diff}")
    compared = actions.add_parser(
        "diff",
        help="compare the golden values of two commits, or of two folders",
        description="Compare the golden values of two commits, or of two folders. Exit status: 0 if every change is "
        "expected drift, 1 if a file would be held back or refused, 2 cannot tell.",
        epilog="Example: runbook golden diff main HEAD --csv measures.csv",
    )
    compared.add_argument("old", metavar="OLD", help="a folder, or a commit of --repo")
    compared.add_argument("new", metavar="NEW", help="a folder, or a commit of --repo")
    compared.add_argument(
        "--repo", default=".", help="the clone with the commits, possibly bare (default: the current one)"
    )
    compared.add_argument(
        "--history", default="", metavar="REF", help="judge with the history up to this commit (default: OLD)"
    )
    compared.add_argument(
        "--csv", default="", metavar="FILE", help="write the measures of every file and metric to this file"
    )
    compared.add_argument("--json", action="store_true", help="print JSON")
    compared.add_argument("--markdown", action="store_true", help="print Markdown, for a pull request")


def _add_image(commands: Commands) -> None:
    image = commands.add_parser("image", help="show what a new image changes, and which drivers support it")
    actions = image.add_subparsers(dest="action", required=True, metavar="{diff,list,driver}")
    differ = actions.add_parser(
        "diff",
        help="compare two images of a registry",
        description="Compare the configs of two images, which name the versions of their components, and print "
        "Markdown. No layer is read. Exit status: 0 compared, 2 cannot tell.",
        epilog="Example: runbook image diff 26.02-py3 26.04-py3",
    )
    differ.add_argument("old", metavar="OLD", help="an image, or a tag of nvcr.io/nvidia/pytorch such as 26.02-py3")
    differ.add_argument("new", metavar="NEW", help="likewise")
    differ.add_argument("--json", action="store_true", help="print JSON")
    lister = actions.add_parser(
        "list",
        help="list the tags of an image, newest first",
        description="List the tags of an image, newest first; for CoreWeave's ml-containers, only those that satisfy "
        "all constraints. Exit status: 0 found, 1 none found, 2 cannot tell.",
        epilog="Example: runbook image list ghcr.io/coreweave/ml-containers/torch 'cuda>=12.9' edition=nccl",
    )
    lister.add_argument("image", metavar="REPOSITORY", help="registry and repository, such as nvcr.io/nvidia/nemo")
    lister.add_argument("constraint", nargs="*", help="such as edition=nccl 'cuda>=12.9' torch=2.10; quote > and <")
    driver = actions.add_parser(
        "driver",
        help="check that drivers support an image",
        description="Show which driver an image needs, and whether the given drivers support it. Exit status: 0 all "
        "do, possibly with the compatibility package, 1 one does not, 2 cannot tell.",
        epilog="Example: runbook image driver 26.04-py3 --driver 535.104.05",
    )
    driver.add_argument("image", metavar="TAG", help="an image, or a tag of nvcr.io/nvidia/pytorch such as 26.04-py3")
    driver.add_argument(
        "--driver",
        action="append",
        default=[],
        metavar="VERSION",
        help="a driver such as 535.104.05, or a list of them; repeatable",
    )
    driver.add_argument("--workstation", action="store_true", help="the GPUs are not data-center GPUs")
    driver.add_argument("--json", action="store_true", help="print JSON")


def _add_pins(commands: Commands) -> None:
    pins = commands.add_parser("pins", help="find the pins of a repository")
    actions = pins.add_subparsers(dest="action", required=True, metavar="{find}")
    find = actions.add_parser(
        "find",
        help="find the places that name an image, and draft a pins file",
        description="Find the places in the files of HEAD that name an image of a known family, and draft a pins file: "
        "what one of the last two bumps of an image changed is lockstep, other places are informational. Exit status: "
        "0 found, 1 none found, 2 cannot tell, or the file could not be written.",
    )
    find.add_argument(
        "repo", nargs="?", default=".", metavar="REPO", help="a clone, possibly bare (default: the current one)"
    )
    find.add_argument(
        "--write", action="store_true", help="write the file to .base-image-pins.yaml if that does not exist"
    )
    find.add_argument("--json", action="store_true", help="print JSON")


def _add_practice(commands: Commands) -> None:
    practice = commands.add_parser("practice", help="start the practice environment and show how to reach it")
    practice.add_argument("action", nargs="?", choices=("start", "reset"), default="start", help="default: start")


def _add_why(commands: Commands) -> None:
    why = commands.add_parser(
        "why",
        help="name the root cause of a failure",
        description="Name the root cause of a failure. Exit status: 0 found, 2 unknown, or the logs cannot be read.",
    )
    why.add_argument(
        "place",
        nargs="?",
        default="",
        metavar="PATH|URL",
        help="a log, a folder of rank logs, a zip, or the URL of a run, a job or a pull request on GitHub",
    )
    why.add_argument(
        "--workflow", default="", help="for a pull request: use the newest run of this workflow (default: any)"
    )
    why.add_argument("--audit", default="", metavar="DIR", help="the archive to search for the same failure")
    why.add_argument("--rules", action="store_true", help="list the classes and the rules")
    why.add_argument("--json", action="store_true", help="print JSON")


def _add_watch(commands: Commands) -> None:
    watch = commands.add_parser(
        "watch",
        help="propose a newer tag for the pins",
        description="Compare the pins of a branch with the registry, and propose the newest tag that nothing holds "
        "back. Exit status: 0 up to date, open or held back, 1 a person is needed, 2 cannot tell.",
    )
    watch.add_argument("repo", nargs="?", default=".", metavar="REPO", help="a clone (default: the current one)")
    watch.add_argument("--base", default="main", help="the branch to bump (default: main)")
    watch.add_argument("--remote", default="origin", help="the remote to push branches to (default: origin)")
    watch.add_argument("--image-type", choices=("dev", "lts"), default="dev", help="default: dev")
    watch.add_argument("--publish", action="store_true", help="push, and open the pull request (default: preview)")
    watch.add_argument(
        "--cool-down", type=int, default=None, metavar="DAYS", help="ignore an image for this many days after its build"
    )
    watch.add_argument("--json", action="store_true", help="print JSON")
