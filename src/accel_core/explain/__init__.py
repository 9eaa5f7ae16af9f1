"""Reasons to words: causes and next steps, in English.

Code never reads these texts: a `Why` has the reason as data.
"""
