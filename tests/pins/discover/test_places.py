"""The places of references, followed from one version of a file to the next."""

from runbook_lib.pins.discover.places import places, successors

IMAGE = "nvcr.io/nvidia/pytorch"
README = "{} " + IMAGE + ":25.{:02}-py3.\n"


def test_nothing_is_followed_in_unchanged_or_emptied_files():
    same = places("README.md", README.format("Use", 1))
    assert successors(same, same) == {}
    assert successors(same, {}) == {}
    assert successors({}, same) == {}


def test_a_reworded_line_is_followed():
    ((old, _),) = places("README.md", README.format("Use", 1)).items()
    ((new, _),) = places("README.md", README.format("Run", 2)).items()
    assert successors([old], [new]) == {new: old}
    ((other, _),) = places("docs/x.md", README.format("Run", 2)).items()
    assert successors([old], [other]) == {}


def test_a_moved_line_is_followed():
    ((old, _),) = places("scripts/a.sh", f"docker run {IMAGE}:25.01-py3\n").items()
    ((new, _),) = places("tools/b.sh", f"docker run {IMAGE}:25.02-py3\n").items()
    assert successors([old], [new]) == {new: old}


def test_jobs_with_the_same_line_are_distinguished_by_their_keys():
    job = "  {}:\n    container:\n      image: " + IMAGE + ":{}-py3\n"
    old = "jobs:\n" + job.format("test", "25.01")
    new = "jobs:\n" + job.format("lint", "24.01") + job.format("test", "25.01")
    (before,), after = places("ci.yml", old), places("ci.yml", new)
    assert [reference.tag for place, reference in after.items() if place == before] == ["25.01-py3"]


def test_a_row_is_followed_past_a_new_one():
    row = "        - name: {}\n          base: " + IMAGE + ":{}-py3\n"
    head = "jobs:\n  x:\n    strategy:\n      matrix:\n        include:\n"
    old = head + row.format("torch20", "24.01") + row.format("latest-cuda124", "24.08")
    new = head + row.format("torch20", "24.01") + row.format("torch24", "24.08") + row.format("latest-cuda126", "24.10")
    before, after = places("ci.yml", old), places("ci.yml", new)
    ((row_after, row_before),) = successors(before, after).items()
    assert (before[row_before].tag, after[row_after].tag) == ("24.08-py3", "24.10-py3")
