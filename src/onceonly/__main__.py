"""``python -m onceonly``: the command line where its script is not on the PATH."""

from onceonly.cli import main

if __name__ == "__main__":
    main()
