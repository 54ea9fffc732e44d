"""Corpora on disk: sources read in any size, the store they are built into, checks that it is whole."""
