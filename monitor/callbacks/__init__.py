"""Callbacks for trainers, each added in one line; importing this imports no trainer.

``huggingface``, ``lightning`` and ``keras`` have one class each, ``Whyidle``. They mark steps and
phases, hand what a watching monitor has found to the user's own logger, and print the verdict at
the end. While nobody watches they do nothing.
"""
