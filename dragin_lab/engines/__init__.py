"""Engines: what writes drafts and measures them. torch and transformers are imported here and nowhere below."""
