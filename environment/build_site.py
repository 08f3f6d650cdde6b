"""Build the documentation's site: the documents, the executed practice notebooks, and the reference from the code.

    environment/run python environment/build_site.py [FOLDER]

The default folder is ``site/``.  The build is strict: a broken link, or a page in no menu, ends it with exit status 1.
Notebooks run in a separate practice environment; nothing leaves the machine.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

import nbconvert
import nbformat
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from runbook_lib import notebooks
from runbook_lib.cli.parser import parser
from runbook_lib.runner.parameters import NotebookSource

ROOT = Path(__file__).resolve().parent.parent
TAG = "26.05-py3"
#: Documents outside ``docs/`` that become pages.
PAGES = {
    "README.md": "index.md", "SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}  # fmt: skip
_LINK = re.compile(r"(?<!!)\[([^\]\[]{1,300})\]\(([^()\s]{1,300})\)")
_HREF = re.compile(r'href="([^":#]{1,300}\.(?:ipynb|md))(#[^"]{0,200})?"')


def page_of(path: str) -> str:
    """Return the page for a file of the project, such as ``notebooks/bump.md``; empty if it has none."""
    if path in PAGES:
        return PAGES[path]
    file = PurePosixPath(path)
    if file.parent.name == "runbooks" and file.suffix == ".ipynb":
        return f"notebooks/{file.stem}.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else ""


def relink(text: str, source: str) -> str:
    """Return a document whose links to project files lead to pages; links to files without a page become plain text."""
    here = PurePosixPath(page_of(source)).parent

    def replace(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, mark, anchor = target.partition("#")
        if not path or "://" in target or target.startswith("mailto:"):
            return match[0]
        page = page_of(normpath(str(PurePosixPath(source).parent / path)))
        return f"[{label}]({relpath(page, here)}{mark}{anchor})" if page else label

    return _LINK.sub(replace, text).replace("](docs/", "](")


def executed(folder: Path) -> Mapping[str, Path]:
    """Run a bump and all other notebooks in a practice environment below a folder; return them by name."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "GITLAB_"))}
    environ |= {"RUNBOOK_PRACTICE_HOME": str(folder / "practice"), "RUNBOOK_AUDIT": str(folder / "audit")}
    results: dict[str, Path] = {}

    def run(name: str, *arguments: str) -> None:
        results[name] = folder / f"{name}.ipynb"
        command = ["papermill", f"{ROOT}/runbooks/{name}.ipynb", str(results[name]), *arguments]
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name} ended with exit status {done.returncode}:\n{done.stderr}")

    run(notebooks.BUMP, "-r", "tag", TAG, "-p", "wait", "True")
    for record in sorted((folder / "audit").rglob("run.json")):
        name = json.loads(record.read_text("utf-8"))["predicate"]["notebook"]["name"]
        results.setdefault(name, record.with_name("executed.ipynb"))
    for source in sorted((ROOT / "runbooks").glob("*.ipynb")):
        if source.stem not in results:
            run(source.stem)
    return results


def notebook_page(source: NotebookSource, done: Path, temporary: Path) -> str:
    """Return the page of a notebook: its parameters, and its output in the practice environment."""
    content = nbformat.read(done, as_version=4)
    content.cells = [cell for cell in content.cells if "parameters" not in cell.metadata.get("tags", [])]
    exporter = nbconvert.HTMLExporter(template_name="basic", exclude_input=True, exclude_output_prompt=True)
    html = (
        exporter.from_notebook_node(content)[0].replace(str(temporary), "~").replace(str(ROOT), "~/base-image-runbook")
    )
    title = content.cells[0].source.splitlines()[0].removeprefix("# ")

    def relative(match: re.Match[str]) -> str:
        page = page_of(normpath(f"runbooks/{match[1]}"))
        if not page:
            raise SystemExit(f"{source.name} links to {match[1]}, which has no page.")
        return f'href="{relpath(page.removesuffix(".md"), f"notebooks/{source.name}")}/{match[2] or ""}"'

    html = re.sub(r"<h1.*?</h1>", "", _HREF.sub(relative, html), count=1, flags=re.DOTALL)
    rows = [f"| `{each.name}` | `{each.default!r}` | {each.help} |" for each in source.parameters]
    table = "\n".join(["## Parameters", "", "| name | default | meaning |", "|---|---|---|", *rows, ""]) if rows else ""
    shown = "This is a run in the practice environment. The notebook has the code."
    return f'# {title}\n\n{shown}\n\n<div class="executed">\n{html}\n</div>\n\n{table}'


def commands() -> Iterator[str]:
    """Yield the options of each command, as ``--help`` prints them."""
    yield "## Options\n"
    todo = [parser()]
    while todo:
        command = todo.pop(0)
        children = [action.choices for action in command._actions if isinstance(action, argparse._SubParsersAction)]
        todo = [child for choices in children for child in choices.values()] + todo
        if not children:
            yield f"### {command.prog}\n\n```\n{command.format_help()}```\n"


def stage(folder: Path) -> None:
    """Write all pages to a folder."""
    shutil.copytree(ROOT / "docs", folder)
    for name in (*PAGES, *(f"docs/{path.name}" for path in folder.glob("*.md"))):
        (folder / page_of(name)).write_text(relink((ROOT / name).read_text("utf-8"), name), "utf-8")
    with (folder / "commands.md").open("a", encoding="utf-8") as page:
        page.write("\n" + "\n".join(commands()))
    pages = folder / "notebooks"
    pages.mkdir()
    with tempfile.TemporaryDirectory(prefix="site-") as temporary:
        for name, done in executed(Path(temporary)).items():
            source = NotebookSource.read(ROOT / f"runbooks/{name}.ipynb")
            (pages / f"{name}.md").write_text(notebook_page(source, done, Path(temporary)), "utf-8")


def main() -> int:
    """Build the site; return 1 if a page or a link is wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", default="site", help="the folder for the site (default: site)")
    target = Path(options.parse_args().folder).resolve()
    os.environ |= {"COLUMNS": "100", "NO_MKDOCS_2_WARNING": "1"}
    with tempfile.TemporaryDirectory(prefix="pages-") as temporary:
        stage(Path(temporary) / "docs")
        config = load_config(str(ROOT / "mkdocs.yml"), strict=True)
        config.docs_dir, config.site_dir = f"{temporary}/docs", str(target)
        try:
            build(config)
        except Abort as error:
            print(f"site: {error}", file=sys.stderr)
            return 1
    print(f"{target}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
