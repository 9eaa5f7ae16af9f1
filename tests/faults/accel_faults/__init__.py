"""The fault matrix: what may go wrong, where in a plugin, and in what a user runs.

`catalogue` has the faults and the places, `installed` makes a distribution of one of each, `modes` runs it as
a user does and looks at what is left, `rules` says beforehand what must be seen, `record` keeps it.
"""
