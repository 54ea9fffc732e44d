"""The authors' released code, to the letter."""
