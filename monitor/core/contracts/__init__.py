"""The JSON that other programs read, as types shared by its writers and readers.

A key listed in ``unknown`` is null or empty, with the reason beside it; keys stand in the order of
their fields. Traces are dicts: the store also holds those of older versions, so read keys that were
added later with ``get``.
"""
