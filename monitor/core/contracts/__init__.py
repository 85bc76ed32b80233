"""The JSON that other programs read, as types shared by its writers and readers.

A key listed in ``unknown`` is null or empty, with the reason beside it. The store also holds
answers of older versions, so read keys that were added later with ``get``.
"""
