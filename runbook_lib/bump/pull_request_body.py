"""A pull request's description: the repository's template, or people's text, around our own part.

Our part is between two markers.  Outside values (paths, rows, images, warnings) are shown literally: they cannot
mention anybody, close an issue, form a table, hide text, or give a command to a bot or to CI.
"""

from collections.abc import Mapping, Sequence

from runbook_lib.pins.bump import Bump
from runbook_lib.pins.plan import PinPlan
from runbook_lib.text import markdown_texts
from runbook_lib.world.bump_pull import marked

#: The paths where GitHub searches for a pull request template, in this order.
TEMPLATES = (
    ".github/pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE.md", "pull_request_template.md",
    "PULL_REQUEST_TEMPLATE.md", "docs/pull_request_template.md", "docs/PULL_REQUEST_TEMPLATE.md",
)  # fmt: skip


def fill_in(template: str, sentence: str) -> str:
    """Return a repository's template with the common parts of every bump filled in, and the rest unchanged.

    That is the ``sentence`` on the change in place of the comment below the first heading, that no issue is linked, and
    the boxes that a change of pins alone meets: "…, or none are needed".  Only a person can tick the others.
    """
    lines = template.splitlines(keepends=True)
    has_sentence = False
    for number, line in enumerate(lines):
        text = line.rstrip("\r\n")
        is_comment = text.strip().startswith("<!--") and text.strip().endswith("-->")
        new = text
        if is_comment and not has_sentence and number and lines[number - 1].startswith("#"):
            new, has_sentence = sentence, True
        elif text.lower().startswith("linked issue: <!--") and text.endswith("-->"):
            new = f"{text[: len('linked issue:')]} none"
        elif text.startswith("- [ ] ") and "none are needed" in text.lower():
            new = text.replace("[ ]", "[x]", 1)
        lines[number] = new + line[len(text) :]
    return "".join(lines)


def part(
    plan: PinPlan, bump: Bump, digests: Mapping[str, str], record: str, image: str = "", validation: Sequence[str] = ()
) -> str:
    """Return our part, with its markers: the changed pins, digests (platform → digest), warnings, the record.

    ``image`` lists the changes in the new image, as Markdown; ``validation`` has the steps that validate an LTS bump.
    """
    other_type = "" if bump.allowed("both-types") else bump.repository.other_type(bump.image_type)
    text = markdown_texts.render(
        "pins", plan=plan, bump=bump, other_type=other_type, digests=digests, image=image, validation=validation,
        record=record,
    )  # fmt: skip
    return marked(text, bump, "")
