"""Benchmarks: every claim about speed, with both sides timed in one run.

``make bench`` runs all of them, prints a table, and writes JSON to ``benchmarks/results``.
"""
