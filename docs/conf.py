"""How the documentation is built: Markdown pages, and docstrings for the reference."""

from coterie import __version__

project = "coterie"
author = "The coterie developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"coterie {__version__}"
exclude_patterns = ["_build"]
numpydoc_show_class_members = False
autodoc_member_order = "bysource"
suppress_warnings = ["myst.xref_missing"]
