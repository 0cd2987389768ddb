"""A page about runs, made from their folders."""
