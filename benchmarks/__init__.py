"""Speed as ratios against a peer, both measured in one run: `./dev bench`, `./dev bench-deepspeed`.

Absolute times are for the reader; only ratios are compared with a target, and no test is timed.
"""
