"""Entry points in, a `Selection` out: a pipeline of small functions over the records of `records`.

    plugins        entry points, a plugin's declarations, and its hooks
    builtin        the backends that accel_core brings itself
    creation       a candidate to a live accelerator
    facts, device  a candidate to an outcome: without importing anything, then by asking
    isolated       the same, in a child process
    discovery      entry points to candidates, in rank order
    autoload       what torch's autoload spoils
    probe          a candidate to its verdict, each question once
    messages       errors and warnings in words
    select         candidates and a judge to a choice; the one place that decides
    survey         every verdict at once, for people

A module imports only from those above it. Importing one imports neither torch nor a vendor's package.
"""
