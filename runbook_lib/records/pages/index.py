"""``index.html`` of an archive: every bump in one row, built from the ``run.json`` files alone; and their stories."""

import html
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from runbook_lib.display import MARKS, count, linked
from runbook_lib.records.archive import Runs, bump_folders, place_of, runs
from runbook_lib.records.chain import LOCK
from runbook_lib.records.pages import story
from runbook_lib.records.pages.html import MADE_OF, is_address, link, moment, page, sealed, span, to_bytes
from runbook_lib.records.statement import REPORT, STORY
from runbook_lib.records.status import BumpStatus, bump_status, newest_first
from runbook_lib.system.atomic_files import close_to_others, write
from runbook_lib.system.locks import locked

INDEX = "index.html"
_LOCK = ".index.lock"
#: What lies in the folder of an archive beside its bumps.
_BESIDE = (INDEX, _LOCK, ".git", ".gitattributes", ".gitignore", "README.md")
#: Characters of a sentence: the story has all of it.
_LONGEST = 300
#: Bytes of a story that hold what it says of itself.
_HEAD_OF_PAGE = 2_000
_STYLE = """
.sieve { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: end; padding: .8rem 0; }
.sieve label { display: flex; flex-direction: column; font-size: .875rem; flex: 1 1 9rem; min-width: 0; }
.sieve input, .sieve select { font: inherit; padding: .3rem .4rem; width: 100%; color: var(--text);
  background: var(--back); border: 1px solid var(--muted); border-radius: .3rem; }
[hidden] { display: none !important; }
ul.bumps { list-style: none; padding: 0; }
ul.bumps > li { display: grid; grid-template-columns: 9rem minmax(0, 1fr); gap: .2rem 1rem; padding: .8rem .8rem;
  border: 1px solid var(--line); border-left: .3rem solid var(--muted); border-radius: .3rem; margin: .6rem 0;
  overflow-wrap: anywhere; break-inside: avoid; }
ul.bumps h2 { font-size: 1.1rem; margin: 0; grid-column: 1 / -1; }
ul.bumps h2 span { font-weight: 400; }
ul.bumps p { margin: 0; }
li.ready, li.done { border-left-color: var(--good); }
li.waiting, li.running { border-left-color: var(--wait); }
li.failed, li.killed, li.cancelled, li.incomplete, li.unreadable { border-left-color: var(--bad); }
.state { font-weight: 600; }
@media (max-width: 40rem) { ul.bumps > li { grid-template-columns: minmax(0, 1fr); } }
"""
#: Without it all rows are there, and no controls.
_SCRIPT = """
const bar = document.querySelector('.sieve'), rows = [...document.querySelectorAll('ul.bumps > li')];
const [text, state, repository, world] = bar.querySelectorAll('input, select');
function sift() {
  const words = text.value.toLowerCase().split(/\\s+/);
  const fits = (row) => words.every((word) => row.textContent.toLowerCase().includes(word))
    && [state, repository, world].every((it) => !it.value || row.dataset[it.name] === it.value);
  for (const row of rows) row.hidden = !fits(row);
  bar.querySelector('output').value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown`;
}
bar.hidden = false;
bar.addEventListener('input', sift);
sift();
"""


def write_index(archive: Path) -> None:
    """Write the index, and the stories that the records made old.  Raises RunbookError when one cannot be written."""
    with locked(archive / _LOCK):  # else a slower writer could put an older view over a newer one
        found = []
        folders = bump_folders(archive.absolute())
        _close(archive.absolute(), folders)
        for folder in folders:
            read = runs(folder)
            status = bump_status(folder, read.readable, read.unreadable)
            if status is not None:
                found.append((status, read))
                if read.readable:
                    _write_story(folder, status, read)
        write(archive / INDEX, to_bytes(render(archive.absolute(), found)))


def _close(archive: Path, bumps: Iterable[Path]) -> None:
    """Close what earlier versions left open to others; the archive's own folder if nothing else lies in it."""
    names = set(_BESIDE)
    for bump in bumps:
        close_to_others(bump)
        names.update(bump.relative_to(archive).parts[:1])
    if names.issuperset(os.listdir(archive)):
        close_to_others(archive)


def render(archive: Path, found: Iterable[tuple[BumpStatus, Runs]]) -> str:
    """The page."""
    read = {status.story: runs for status, runs in found}
    bumps = newest_first(status for status, _ in found)
    states = Counter(bump.state for bump in bumps)
    told = ", ".join(f"{number} {state}" for state, number in states.most_common())
    rows = "\n".join(_row(archive, bump, len(read[bump.story].readable)) for bump in bumps)
    as_of = html.escape(moment(max((bump.last for bump in bumps), default="")))
    body = f"""<h1>Base image bumps</h1>
<p>{count(len(bumps), "bump")}{": " * bool(told)}{html.escape(told)}.</p>
{_sieve(bumps)}
<ul class="bumps">
{rows}
</ul>
<p class="muted">{f"As of {as_of}, when the last run ended. " * bool(as_of)}<code>runbook status</code> tells
where bumps stand now, <code>runbook audit verify</code> whether these records are whole.</p>"""
    return page("Base image bumps", body, style=_STYLE, script=_SCRIPT)


def _write_story(folder: Path, status: BumpStatus, read: Runs) -> None:
    """Write the story, unless it was made from these very records: a state may change without a file that does."""
    found = json.dumps([read.readable, read.unreadable], sort_keys=True, default=str)
    made_of = sha256(found.encode("utf-8", "backslashreplace")).hexdigest()
    if f'<meta name="{MADE_OF}" content="{made_of}">' in _beginning(folder / STORY):
        return
    text = to_bytes(story.render(folder, status, read.readable, made_of))
    with locked(folder / LOCK):  # whoever holds it clears away drafts
        write(folder / STORY, sealed(text, place_of(folder)))


def _beginning(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return content.read(_HEAD_OF_PAGE).decode("utf-8", "replace")
    except OSError:
        return ""


def _sieve(bumps: Iterable[BumpStatus]) -> str:
    states = Counter(bump.state for bump in bumps)
    repositories = Counter(bump.repository for bump in bumps)
    worlds = Counter("practice" if bump.practice else "real" for bump in bumps)
    return (
        '<div class="sieve screen" role="search" hidden>'
        '<label>Words <input type="search" name="text" autocomplete="off"></label>'
        f"{_select('State', 'state', states)}{_select('Repository', 'repository', repositories)}"
        f'{_select("World", "world", worlds)}<output aria-live="polite"></output></div>'
    )


def _select(label: str, name: str, numbers: Mapping[str, int]) -> str:
    options = "".join(
        f'<option value="{html.escape(value)}">{html.escape(value)} ({number})</option>'
        for value, number in sorted(numbers.items())
    )
    return f'<label>{label} <select name="{name}"><option value="">all</option>{options}</select></label>'


def _row(archive: Path, bump: BumpStatus, number: int) -> str:
    place = Path(bump.story).parent
    title = html.escape(f"{bump.tag or 'no tag'} ({bump.image_type}) on {bump.base}")
    if (place / STORY).is_file():
        title = f'<a href="{_address(archive, place / STORY)}">{title}</a>'
    practice = " · practice: nothing left the machine" * bump.practice
    step = f"<strong>{html.escape(bump.step)}</strong>: " if bump.step else ""
    lines = [f"<p>{step}{linked(_short(bump.sentence)) or 'nothing said yet'}</p>"]
    if bump.next:
        lines.append(f"<p><strong>Next</strong>: {linked(_short(bump.next))}</p>")
    if bump.warning:
        lines.append(f"<p><strong>Warning</strong>: {linked(bump.warning)}</p>")
    return (
        f'<li class="{html.escape(bump.state)}" data-state="{html.escape(bump.state)}" '
        f'data-repository="{html.escape(bump.repository)}" data-world="{"practice" if bump.practice else "real"}">'
        f"<h2>{title} <span>{html.escape(bump.repository)}{practice}</span></h2>"
        f'<p class="state">{html.escape(MARKS.get(bump.state, bump.state))}</p>'
        f'<div>{"".join(lines)}<p class="muted">{_times(bump, number)}</p><p>{_links(archive, bump)}</p></div></li>'
    )


def _times(bump: BumpStatus, number: int) -> str:
    if not bump.started:
        return ""
    took = f"{span(bump.started, bump.last)} from the first run to the last" if bump.last else "a run goes on"
    return f"{html.escape(bump.state)} since {html.escape(moment(bump.since))} · {took} · {count(number, 'record')}"


def _links(archive: Path, bump: BumpStatus) -> str:
    parts = [link(name, url) for name, url in bump.links.items() if is_address(url)]
    report = Path(bump.record) / REPORT
    if bump.step and report.is_file():
        parts.append(f'<a href="{_address(archive, report)}">report of {html.escape(bump.step)}</a>')
    return " · ".join(parts)


def _address(archive: Path, file: Path) -> str:
    return html.escape(quote(file.relative_to(archive).as_posix()))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rsplit(' ', 1)[0]} …"
