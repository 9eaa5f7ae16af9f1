"""Reasons to words: causes and next steps, in English.

A choice that succeeds imports none of it. Code never reads what stands here.
"""
