"""The library behind the runbook notebooks.

Pure modules (text and data in, text and data out):
    errors, image, bump, edits, pins, sites
Effects (the only modules that touch the world):
    checkout (git), registry (OCI), github (REST API), record (what a step did and saw)
On top:
    pull_request, ci (what steps 3 and 4 do with git and GitHub), archive (all records together),
    forms, views (widgets; tables), run (runs the notebooks headlessly), __main__ (the command ``runbook``),
    practice (a world to practise in: checkout, forge, registry and a CI that misbehaves)
"""
