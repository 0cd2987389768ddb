"""Rows: whose they are, where they come from, how they are dealt out."""
