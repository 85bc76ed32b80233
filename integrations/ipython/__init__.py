"""The package `whyidle` itself: only for notebooks, where `%load_ext whyidle` imports it.

Every training job that marks steps imports this first: it does nothing.
"""


def load_ipython_extension(shell: object) -> None:
    """Add ``%%whyidle`` and ``%whyidle`` to a notebook."""
    from whyidle.monitor import load_ipython_extension as load  # noqa: PLC0415

    load(shell)
