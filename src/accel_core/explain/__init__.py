"""Express causes and next steps in English.

Code never parses these texts, because a `Why` contains the reason as data.
"""
