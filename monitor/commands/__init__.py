"""One module, one command. A module imports what it needs when it runs, so that --help is quick."""
