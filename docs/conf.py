"""The documentation's site, made by Sphinx: `./dev docs` builds it into site/. It needs no network."""

from accel_core import __version__

project = "accel"
author = "the accel developers"
release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "sphinx_copybutton",
]
# Options begin with two hyphens, which it would join to a dash.
smartquotes = False
html_theme = "furo"
html_title = "accel"
html_theme_options = {"navigation_with_keys": True}
html_show_sourcelink = False
html_copy_source = False
exclude_patterns = ["backends/notes"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# Docstrings write names between single backticks, as Markdown does.
default_role = "code"
autodoc_class_signature = "mixed"
autodoc_member_order = "alphabetical"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# Of dataclasses and enumerations, what stands above each field says what it is.
autodoc_default_options = {"members": True, "undoc-members": True}
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
