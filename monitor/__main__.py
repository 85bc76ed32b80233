"""``python -m whyidle.monitor``: the same as the command ``monitor``."""

from whyidle.monitor.cli import main

if __name__ == "__main__":
    main()
