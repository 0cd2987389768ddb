"""Runs from configuration files, their folders, and the demonstration."""
