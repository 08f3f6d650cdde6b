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
world             what is read of a bump; conditions: what shall hold outside
clients, git      GitHub, GitLab and registries; commits without a work tree
transport, system bounded HTTP; files, locks, processes
recipes           test rows
pins              pin sites, the plan of a bump, the sync check
images            references, tag families, changes in a new image, drivers
model, display    a plan and its conditions; tables and diffs
text              pure text functions: edits, YAML spans, Dockerfiles, Markdown, redaction
checks, decisions the result of a check, and what comes next; what a person decides
errors, notebooks the errors shown to people; the notebooks' names, and the steps of a bump
"""
