"""Secrets of all usual kinds, made up: none was ever issued.  And where one is looked for afterwards."""

import base64
import gzip
import io
import json
import os
import random
import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

from secret_forms import FORMS, drawn, pem

_ADDRESS = "git clone https://ada:{}@git.example/x.git"
#: Where a secret stands of which only its place tells what it is.
_PLACES = {
    "Slack hook": "https://hooks.slack.com/services/T0123ABCD/B0123ABCD/{}",
    "a password": _ADDRESS, "RSA key": "the key {}",
}  # fmt: skip
KINDS = (
    "GitHub, personal", "GitHub, app", "GitHub, fine-grained", "GitLab, personal", "NVIDIA", "Hugging Face", "AWS",
    "Slack, bot", "JSON web token", "npm", "Docker Hub", "Anthropic", *_PLACES,
)  # fmt: skip


def make(name: str, draw: random.Random) -> str:
    """One of a kind."""
    if name == "RSA key":
        return pem("RSA PRIVATE KEY", draw).strip()
    others = {"Slack hook": "<24>", "a password": "<14>!"}
    return drawn(others.get(name) or FORMS[name][1], draw)


def secrets(seed: object) -> dict[str, str]:
    """One of each kind."""
    return {name: make(name, random.Random(f"{seed} {name}")) for name in KINDS}


def shown(secret: str, name: str, number: int) -> str:
    """A text with the secret in it, by which it can be told."""
    texts = (_PLACES[name],) if name in _PLACES else ("{}", "the token {}.", "x={}", _ADDRESS)
    return texts[number % len(texts)].format(secret)


# -- letting them out --------------------------------------------------------------------------------------------------

#: Ways in which a cell lets out a ``text`` with a secret.
LEAKS = r"""
print(text)
print(text, file=sys.stderr)
print(f"\x1b[31m{text}\x1b[0m", text.encode(), [text], {text: (text,)}, sep="\r")
print(text + text, end="")
for part in [text[at : at + 7] for at in range(0, len(text), 7)]: print(part, end="", flush=True)
for letter in text: sys.stderr.write(letter); sys.stderr.flush()
for line in text.splitlines(): print(line, flush=True); print(f"a '{line}'", file=sys.stderr, flush=True)
os.write(1, text.encode() + b"\n"); os.write(2, text.encode() + b"\n")
subprocess.run(["sh", "-c", 'echo "$1"; echo "$1" >&2', "sh", text])
subprocess.run(["sh", "-c", 'printf %s "$1"; sleep 0.3; echo "$2"', "sh", text[:9], text[9:]]); time.sleep(1)
busy = subprocess.Popen(["echo", text]); [print('"waiting"', flush=True) for _ in range(9)]; busy.wait(); del busy
shell.system(f"echo {shlex.quote(text)}")
shell.run_line_magic("sx", f"echo {shlex.quote(text)}")
logging.warning("%s", text); logging.getLogger("x").error(text, extra={"y": text})
logging.error("x", exc_info=ValueError(text))
print(f"Authorization: Bearer {text}", f"http.extraheader=AUTHORIZATION: basic {b64(text)}", sep="\n")
print(f"https://x-token:{text}@github.example/o/r.git https://x.example/?private_token={quote(text, safe='')}&b=1")
print(json.dumps({"auths": {"nvcr.io": {"auth": text}}}), json.dumps({text: [text]}, indent=1))
print(f"token: {text}\nlist:\n- '{text}'\nfolded: >-\n  {text}")
print(f"<server><password>{html.escape(text)}</password><a token='{html.escape(text)}'/></server>")
print(f"db.example:5432:*:ada:{text}")
print(f"export NGC_TOKEN={shlex.quote(text)}; NGC_TOKEN={text} make\n[registry]\n_authToken={text}")
display(text); display({"text/plain": text, "text/latex": text, "text/markdown": text}, raw=True)
display({"text/plain": "x"}, raw=True, metadata={"told": text})
display(HTML(f"<table><tr><td title='{html.escape(text)}'>{html.escape(text)}</td></tr></table>"))
display(JSON({"a": [text], text: 1}), Javascript(f"x = {json.dumps(text)}"), SVG(f"<svg><text>{text}</text></svg>"))
display(pandas.DataFrame([{"told": text, text: 1}], index=[text]), pandas.Series([text], name=text))
handle = display(text, display_id=True); handle.update({"text/plain": text, "text/latex": text}, raw=True)
display(widgets.Text(text), widgets.HTML(f"<b>{text}</b>"), widgets.Password(text))
display(widgets.Dropdown(options=[text, "b"]), widgets.Button(description="x" * 70, tooltip=text))
display(widgets.VBox([widgets.Accordion([widgets.Label(text)], titles=[text])]), widgets.Label("x" * 80 + text))
out = widgets.Output(); display(out); out.append_stdout(text); out.append_display_data(HTML(text))
create_comm("x", data={text: text}, metadata={"y": text}, buffers=[text.encode()]).send(text, buffers=[text.encode()])
figure = Figure(); figure.suptitle(text.replace("$", "")); display(SVG(drawn(figure)))
step.effect(Effect("push", text, text, {"new": text}, url=text))
step.check(Check(text, "failed", text))
step.keep(Evidence(warnings=(text,), links={text: text}))
step.keep(Evidence(decided=(Decision("allow", text, text),)))
step.keep(Evidence(tables={text: [{"name": text, text: 1}]}))
step.keep(Evidence(diff=f"-{text}\n+{text}\n"))
shell.run_cell(f"step.no_such({text!r})")
shell.run_cell(f"{text!r} + ")
shell.run_cell("raise RunbookError(text)")
shell.run_cell("assert text == 1, text")
shell.run_cell("try: int(text)\nexcept ValueError as error: raise OSError(2, 'No such file', text) from error")
shell.run_cell("error = ValueError(1); error.add_note(text); raise ExceptionGroup(text, [error, TypeError(text)])")
shell.run_cell("sys.exit(text)")
""".strip().splitlines()
#: Runs them, each with texts of its own, from a file as ``told``.
LETTING_OUT = """\
import base64, html, io, json, logging, os, shlex, subprocess, sys, time
from urllib.parse import quote
import ipywidgets as widgets, pandas
from comm import create_comm
from IPython.display import HTML, JSON, SVG, Javascript, display
from matplotlib.figure import Figure
from runbook_lib.model import Evidence
from runbook_lib.decisions import Decision
shell = get_ipython()
b64 = lambda text: base64.b64encode(f"ab:{{text}}".encode()).decode()
def drawn(figure):
    with io.StringIO() as file: figure.savefig(file, format="svg"); return file.getvalue()
for form, text in json.load(open({path!r})): exec(form, globals())
"""


def let_out(file: Path, seed: object) -> tuple[str, dict[str, str]]:
    """Write what shall be let out into a file; return a cell that does it, and the secrets by their form.

    Each form gets a secret of its own, the kinds one after the other, and a value of an environment variable is among
    them: ``SEED_TOKEN``.
    """
    told, by_form = [], {}
    for number, form in enumerate(LEAKS):
        name = KINDS[number % len(KINDS)]
        by_form[form] = make(name, random.Random(f"{seed} {number}"))
        told += [(form, shown(by_form[form], name, number)), (form, os.environ.get("SEED_TOKEN", ""))]
    file.write_text(json.dumps(told))
    return LETTING_OUT.format(path=str(file)), by_form


# -- looking for them --------------------------------------------------------------------------------------------------

#: Characters of a part of a secret that must not be found either.
_PART = 16


def needles(secret: str) -> set[bytes]:
    """The secret as it may lie in a file: as it is and its parts, in an address, and in base64."""
    found = {secret, quote(secret, safe=""), quote_plus(secret)}
    lines = [it for it in secret.splitlines() if not it.startswith("-----")]
    for line in lines:
        # Not the prefix of all of its kind, nor the head of all JSON web tokens.
        own = line[line.find(".") + 1 :] if line.startswith("eyJ") else line[min(12, len(line) // 4) :]
        found |= {own[at : at + _PART] for at in range(0, max(1, len(own) - _PART + 1), 4)}
        found |= {
            base64.b64encode(line.encode()).decode()[4:-4],
            base64.urlsafe_b64encode(line.encode()).decode()[4:-4],
        }
    return {it.encode() for it in found if len(it) >= 8}


class Search:
    """Looks for secrets in whatever is given, packed and encoded content too."""

    def __init__(self, sought: Iterable[str]) -> None:
        self._names = {needle: secret[:9] for secret in sought for needle in needles(secret)}
        self._any = re.compile(b"|".join(re.escape(it) for it in sorted(self._names, key=len, reverse=True)))

    def found(self, content: bytes, depth: int = 0) -> set[str]:
        """How the secrets begin that it holds."""
        names = {f"{self._names[it]}… as {it.decode()}" for it in self._any.findall(content)}
        for inner in self._inner(content) if depth < 3 else ():
            names |= self.found(inner, depth + 1)
        return names

    def _inner(self, content: bytes) -> Iterator[bytes]:
        if content.startswith(b"\x1f\x8b"):
            yield gzip.decompress(content)
        if content.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                yield from (it.filename.encode() + b"\n" + packed.read(it) for it in packed.infolist())

    def below(self, folder: Path, but: Iterable[Path] = ()) -> dict[str, set[str]]:
        """By file, whose name is looked at too; ``but`` are those in which they were put."""
        put = set(but)
        hits: dict[str, set[str]] = {}
        for path in sorted(folder.rglob("*")):
            if put & {path, *path.parents}:
                continue
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            if found := self.found(content) | self.found(bytes(path.relative_to(folder))):
                hits[str(path.relative_to(folder))] = found
        return hits

    def in_git(self, repository: Path) -> set[str]:
        """In every object, name of a branch and log of a repository."""
        git = ["git", "-C", str(repository)]
        objects = [*git, "cat-file", "--batch-all-objects", "--batch", "--unordered"]
        told = [subprocess.run(it, capture_output=True, check=True).stdout for it in (objects, [*git, "for-each-ref"])]
        return set().union(*map(self.found, told))
