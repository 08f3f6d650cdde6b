"""The library behind the runbook notebooks.  Imports go down this list only.

cli               the ``runbook`` command
notebook          begin, papermill's engine, redaction in the kernel, the form, its cards, the start page
bump              a run, pins, pull request, CI run, rounds, readiness, after the merge
bisect            which change in the image did it
compute           image builds, work inside them, Slurm, internal CI
failures          causes from logs, issues, quarantine
golden            golden values: read, judge, refresh
practice          the practice environment: forge, registry, CI
record            recorder, archive in git, run.json, verification, report; decisions, the status of bumps
world             the ports and their clients, a bump's branch, conditions, git, bounded HTTP, files and processes
pins              pin sites, the plan of a bump, the sync check
images            references, tag families, changes in a new image, drivers
model, display    a plan, its conditions and checks, and what comes next; tables and diffs
text              pure text functions: edits, YAML spans, recipe rows, Dockerfiles, Markdown, redaction
decisions         what a person decides
errors, notebooks the errors shown to people; the notebooks' names, and the steps of a bump
"""
