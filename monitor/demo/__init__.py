"""The demo: small jobs before and after a fix, run, measured, and compared with what was said."""
