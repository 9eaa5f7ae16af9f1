"""Entry points in, a `Selection` out: a pipeline of small functions over the records of `records`.

    entry_points   the scan of installed distributions
    plugin         a plugin's declarations, and its hooks
    builtin        the backends that accel_core brings itself
    discovery      entry points to candidates, in rank order
    creation       a candidate to a live accelerator
    probe          a candidate to its verdict: static facts, then the device
    messages       errors and warnings in words
    select         candidates and a judge to a choice; the one place that decides
    choose         the choice of this process: `select` with a judge that probes when it is asked
    survey         every verdict at once, for people: `select` with a judge that looks them up

A module imports only from those above it. Importing one imports neither torch nor a vendor's package.
"""
