"""The JSON that other programs read, as types: who writes it and who reads it share them.

A key that is listed in ``unknown`` is null or empty there, with the reason beside it. Answers of
older versions are read back from the store: what was added later is asked for with ``get``.
"""
